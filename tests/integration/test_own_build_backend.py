"""What a project's build backend is asked in the container, and how it may fail."""

import pytest

from torchwheel.pipeline import own_build
from torchwheel_runtime.errors import TorchwheelError

pytestmark = pytest.mark.integration


@pytest.mark.parametrize(
    ("setup", "says"),
    [
        ("input('Which CUDA? ')", "EOFError: EOF when reading a line"),
        (
            "import nothing_of_the_kind",
            "ModuleNotFoundError: No module named 'nothing_of_the_kind'",
        ),
        ("open('/proc/outside', 'w')", "No such file or directory: '/proc/outside'"),
        ("import time; time.sleep(60)", "gave no answer in 2 s"),
        ("raise SystemExit(3)", "BuildBackendException: Backend subprocess exited when trying to"),
    ],
)
def test_a_setup_py_that_prompts_hangs_or_lacks_something_is_one_line(
    tmp_path, monkeypatch, setup, says
):
    (tmp_path / "setup.py").write_text(f"{setup}\nfrom setuptools import setup\nsetup()\n")
    monkeypatch.setattr(own_build, "SECONDS", 2 if "sleep" in setup else 60)
    with pytest.raises(TorchwheelError) as caught:
        own_build._dynamic_requirements(tmp_path, {})
    assert str(caught.value).startswith("the project's build backend: ")
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_requirements_of_a_backend_are_read(tmp_path):
    (tmp_path / "setup.py").write_text(
        "print('hello')\nfrom setuptools import setup\nsetup(setup_requires=['ninja>=1.11'])\n"
    )
    assert own_build._dynamic_requirements(tmp_path, {}) == ("ninja>=1.11",)
