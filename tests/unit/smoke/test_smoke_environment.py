"""Where a smoke test runs: environment, locks and bundled packages."""

import os
import threading
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from torchwheel.image.recipes import is_cross, python_of
from torchwheel.matrix.load import load
from torchwheel.matrix.variants import select
from torchwheel.pipeline.cibuildwheel import requirements_to_try
from torchwheel.smoke import trial_environment
from torchwheel.smoke.requirements import BUNDLED_FOLDER, bundled_with, find_lock, read_lock
from torchwheel.smoke.trial_environment import (
    COMPLETE,
    _linked_wheels,
    base_environment,
    base_folder_name,
)
from torchwheel_runtime.console import Quiet
from torchwheel_runtime.errors import UsageError
from torchwheel_runtime.inspect.window import WheelError
from wheelmaker import make_wheel, stable

# A cached smoke environment is for the wheels that lie in pip's folders, not for their names.


def test_another_build_of_a_required_wheel_is_another_environment(tmp_path):
    wheel = tmp_path / "my_kernels-1.0-py3-none-any.whl"
    wheel.write_bytes(b"one")
    (tmp_path / "other-1.0-py3-none-any.whl").write_bytes(b"one")
    environ = {"PIP_FIND_LINKS": f"{tmp_path / 'gone'} {tmp_path}"}
    first = _linked_wheels(["my-kernels>=1.0", "/a/path", "pytest"], environ)
    assert [line.split()[0] for line in first] == [wheel.name]
    wheel.write_bytes(b"two")
    assert _linked_wheels(["my-kernels>=1.0"], environ) != first
    assert _linked_wheels(["my-kernels>=1.0"], {}) == []


def test_a_pipe_in_the_place_of_an_environment_is_not_waited_for(tmp_path, monkeypatch):
    folder = tmp_path / "smoke" / base_folder_name(["pytest"])
    folder.parent.mkdir()
    os.mkfifo(folder)

    def make_venv(path, _python):
        path.mkdir()

    monkeypatch.setattr(trial_environment, "_make_venv", make_venv)
    monkeypatch.setattr(trial_environment, "pip_install", lambda *_, **__: None)
    made = threading.Thread(
        target=base_environment, args=(tmp_path, ["pytest"], Quiet()), daemon=True
    )
    made.start()
    made.join(5)
    assert (folder / COMPLETE).is_file()


def test_environments_that_nobody_uses_make_room(tmp_path, monkeypatch):
    monkeypatch.setattr(trial_environment, "_make_venv", lambda path, _python: path.mkdir())
    monkeypatch.setattr(trial_environment, "pip_install", lambda *_, **__: None)
    kept, unused, used = (base_environment(tmp_path, [name], Quiet()) for name in "abc")
    for folder in (unused, used):
        os.utime(folder / COMPLETE, (0, 0))
    assert base_environment(tmp_path, ["c"], Quiet()) == used
    made = base_environment(tmp_path, ["d"], Quiet())
    assert sorted(path.parent for path in tmp_path.glob(f"smoke/*/{COMPLETE}")) == sorted(
        [kept, used, made]
    )
    assert not unused.exists()
    os.utime(made / COMPLETE, (0, 0))
    made.parent.chmod(0o755)  # a cache that is shared on purpose
    base_environment(tmp_path, ["e"], Quiet())
    assert made.exists()


# The lock of a clean environment: what it pins, which one is taken, and that its hashes hold.


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
        str(read_lock(path, {"python_version": minor})["x"].version) for minor in ("3.10", "3.12")
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


# Bundled packages are found in the folder beside a wheel, or beside it where it requires them.


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
