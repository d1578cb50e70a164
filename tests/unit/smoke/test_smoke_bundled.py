"""Bundled packages are found in the folder beside a wheel, or beside it where it requires them."""

from pathlib import Path

import pytest

from torchwheel.inspect.window import WheelError
from torchwheel.smoke.requirements import BUNDLED_FOLDER, bundled_with
from wheelmaker import make_wheel, stable

TAG = "py3-none-manylinux_2_28_x86_64"


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    return make_wheel(tmp_path, requires=("torch>=2.6", "helper-one>=1,<2", "x; extra == 'y'"))


def test_a_wheel_alone_has_none(wheel: Path) -> None:
    assert bundled_with(wheel) == ()


def test_those_of_the_folder_are_taken(wheel: Path) -> None:
    folder = wheel.parent / BUNDLED_FOLDER
    make_wheel(folder, name="more", version="0.9", requires=())
    made = [make_wheel(folder, name=name, requires=()) for name in ("helper_one", "more")]
    make_wheel(wheel.parent, name="helper_one", version="1.5", requires=())
    assert bundled_with(wheel) == tuple(made)


def test_beside_it_the_newest_that_fits_is_taken_and_what_that_requires(wheel: Path) -> None:
    beside = wheel.parent
    for version in ("0.9", "1.2", "1.10", "2.0"):
        make_wheel(beside, name="helper_one", version=version, requires=("deep",))
    make_wheel(beside, name="deep", requires=("helper-one",))
    make_wheel(beside, name="x", requires=())
    make_wheel(beside, version="1.0.0+cu130", tag=TAG, claims=stable())
    (beside / "no name of a wheel.whl").touch()
    assert [path.name for path in bundled_with(wheel)] == [
        "deep-1.0.0-py3-none-any.whl",
        "helper_one-1.10-py3-none-any.whl",
    ]


def test_one_that_does_not_fit_is_none(wheel: Path) -> None:
    make_wheel(wheel.parent, name="helper_one", version="2.0", requires=())
    assert bundled_with(wheel) == ()


def test_one_that_is_broken_is_one_line(wheel: Path) -> None:
    (wheel.parent / "helper_one-1.2-py3-none-any.whl").write_bytes(b"PK")
    with pytest.raises(WheelError, match=r"^helper_one-1\.2-py3-none-any\.whl: not a whole zip"):
        bundled_with(wheel)
