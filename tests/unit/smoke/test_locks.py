"""The lock of a clean environment: what it pins, which one is taken, and that its hashes hold."""

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from torchwheel.errors import UsageError
from torchwheel.image.recipes import is_cross, python_of
from torchwheel.matrix.load import load
from torchwheel.matrix.variants import select
from torchwheel.pipeline.container_options import requirements_to_try
from torchwheel.smoke.requirements import find_lock, read_lock

ROOT = Path(__file__).parents[3]
LOCKS = ROOT / "tests" / "locks"
HASH = "--hash=sha256:" + "0" * 64


def lock(folder: Path, name: str, *lines: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text("# a comment\n" + "".join(f"{line} \\\n    {HASH}\n" for line in lines))
    return path


def test_every_wheel_that_is_tried_has_a_lock() -> None:
    matrix = load(ROOT / "matrix.yaml")
    taken = set()
    for variant in select(matrix, ["all"]):
        if not is_cross(variant):
            python = python_of(matrix, variant)
            markers = {"python_version": python, "python_full_version": f"{python}.0"}
            taken.add(find_lock(LOCKS, requirements_to_try(matrix, variant), markers))
    assert taken == set(LOCKS.iterdir())


def test_the_newest_torch_that_fits_is_taken(tmp_path: Path) -> None:
    for minor in ("2.9", "2.10", "2.11"):
        lock(tmp_path, f"torch{minor}.txt", f"torch=={minor}.0", "pytest==9.0")
    assert find_lock(tmp_path, ["torch<2.11", "pytest"], {}).name == "torch2.10.txt"
    assert find_lock(tmp_path, ["torch==2.9.*", "PyTest>=8"], {}).name == "torch2.9.txt"


def test_a_local_build_of_torch_is_not_taken(tmp_path: Path) -> None:
    """`==2.9.0` takes 2.9.0+cpu of another index as well, for which the lock has no hash."""
    for path in LOCKS.iterdir():
        assert "\ntorch===" in path.read_text()
    path = lock(tmp_path, "a.txt", "torch===2.9.0")
    assert find_lock(tmp_path, ["torch==2.9.*"], {}) == path


def test_a_pin_for_another_python_does_not_count(tmp_path: Path) -> None:
    path = lock(
        tmp_path,
        "a.txt",
        "torch==2.9.0",
        'x==1 ; python_version < "3.11"',
        'x==2 ; python_version >= "3.11"',
    )
    versions = [
        str(read_lock(path, {"python_version": minor}).pins["x"]) for minor in ("3.10", "3.12")
    ]
    assert versions == ["1", "2"]


def test_no_lock_that_fits_is_one_line(tmp_path: Path) -> None:
    lock(tmp_path, "torch2.9.txt", "torch==2.9.0")
    with pytest.raises(UsageError) as caught:
        find_lock(tmp_path, ["torch==2.9.0", "pytest"], {})
    assert str(caught.value) == (
        f"{tmp_path}: expected a lock with torch==2.9.0, pytest, found torch2.9.txt; add one "
        "(docs/ci.md), or take smoke.locks out of matrix.yaml"
    )
    with pytest.raises(UsageError, match=", found no lock;"):
        find_lock(tmp_path / "gone", ["pytest"], {})


@pytest.mark.parametrize(
    "line",
    [
        "torch==2.9.0",  # without a hash
        f"torch>=2.9 {HASH}",
        f"torch==2.9.* {HASH}",
        f"torch {HASH}",
        f"torch @ https://example.org/torch.whl {HASH}",
        f"--index-url https://example.org {HASH}",
        "-r other.txt",
    ],
)
def test_a_line_that_pins_no_file_is_refused(tmp_path: Path, line: str) -> None:
    path = tmp_path / "a.txt"
    path.write_text(f"x==1 {HASH}\n{line}\n")
    with pytest.raises(UsageError, match=rf"^{path}:2: expected NAME==VERSION and its --hash"):
        read_lock(path, {})


@given(st.text())
@example("x==1 \\")
@example("x=='1'")
@example(f"x==1 ; python_version < {HASH}")
@example(f"x==0+ü {HASH}")
def test_any_text_is_a_lock_or_one_line(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.txt"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    refused = ""
    try:
        read_lock(path, {})
    except UsageError as error:
        refused = str(error)
    assert "\n" not in refused
