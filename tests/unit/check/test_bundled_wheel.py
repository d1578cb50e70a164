from pathlib import Path

import pytest

from torchwheel.inspect.wheel import read_bundled
from torchwheel_runtime.errors import TorchwheelError
from wheelmaker import make_wheel


def test_a_pure_wheel_is_one(tmp_path: Path) -> None:
    assert read_bundled(make_wheel(tmp_path, claims=None)).name == "demo"


@pytest.mark.parametrize(
    ("wheel", "says"),
    [
        ({"tag": "cp312-none-any"}, "has the tag py3-none-any; got cp312-none-any"),
        ({"tag": "py2.py3-none-any"}, "has the tag py3-none-any; got py2-none-any py3-none-any"),
        ({"tag": "py3-none-manylinux_2_28_x86_64"}, "got py3-none-manylinux_2_28_x86_64"),
        (
            {"files": {"demo/__init__.py": b"", "demo/data.bin": b"\x7fELF and so on"}},
            "is pure Python, but demo/data.bin is machine code",
        ),
        ({"bend_record": lambda text: text.replace("sha256=", "sha256=A")}, "RECORD's hash"),
    ],
)
def test_what_is_none_is_refused(tmp_path: Path, wheel: dict, says: str) -> None:
    with pytest.raises(TorchwheelError) as caught:
        read_bundled(make_wheel(tmp_path, claims=None, **wheel))
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_tag_that_only_the_file_name_has_is_refused(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, claims=None, tag="cp312-none-any")
    renamed = wheel.rename(tmp_path / "demo-1.0.0-py3-none-any.whl")
    with pytest.raises(TorchwheelError, match="got cp312-none-any"):
        read_bundled(renamed)
