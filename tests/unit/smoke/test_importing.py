import os
import sys
from pathlib import Path

import pytest

from torchwheel.errors import TorchwheelError
from torchwheel.inspect.wheel import read_wheel
from torchwheel.smoke.environment import Environment
from torchwheel.smoke.testing import import_names, run_python
from wheelmaker import make_wheel


def test_packages_and_modules_at_the_top_are_what_users_import(tmp_path):
    files = {
        "demo_c.cpython-311-x86_64-linux-gnu.so": b"",
        "one.py": b"",
        "package/__init__.py": b"",
        "package/inner/__init__.py": b"",
        "namespace/module.py": b"",
        "demo.libs/libhelp.so.1": b"",
    }
    wheel = make_wheel(tmp_path, files=files)
    assert import_names(read_wheel(wheel)) == ("demo_c", "one", "package")


def test_a_wheel_without_any_is_an_error(tmp_path):
    wheel = make_wheel(tmp_path, files={"demo/data.txt": b"", "readme.txt": b""})
    with pytest.raises(TorchwheelError, match="no package or module to import in it"):
        import_names(read_wheel(wheel))


@pytest.mark.parametrize(
    ("own", "expected"), [({}, "passive"), ({"OMP_WAIT_POLICY": "active"}, "active")]
)
def test_threads_of_torch_wait_without_a_core_unless_the_user_says_otherwise(
    tmp_path, own, expected
):
    env = Environment(Path(sys.executable), {"PATH": os.defpath, **own}, tmp_path)
    done = run_python(env, ["-c", "import os; print(os.environ['OMP_WAIT_POLICY'])"], tmp_path)
    assert done.output.strip() == expected
