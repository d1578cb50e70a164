import pytest

from torchwheel.errors import TorchwheelError
from torchwheel.inspect.wheel import read_wheel
from torchwheel.smoke.importing import import_names
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
