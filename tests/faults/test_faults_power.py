"""A power cut at any moment of a write leaves the old content or the new, whole."""

import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from powercut import Disk, Tree, below, record, states, without_a_cut

from torchwheel.index.writer import IndexedWheel, build_index
from wheelmaker import make_wheel

pytestmark = pytest.mark.integration

START = """
import sys
from pathlib import Path
sys.path.insert(0, TESTS)
from torchwheel_runtime import files
root = Path(sys.argv[1])
"""
PROGRAMS = {
    "file": 'files.write_text(root / "target", "new")',
    "folder": """
with files.make_folder_atomically(root / "target") as folder:
    (folder / "a").write_text("new")
    (folder / "b" / "c").mkdir(parents=True)
    (folder / "b" / "c" / "d").write_text("new")
""",
    "many": """
files._MANY = 1
with files.make_folder_atomically(root / "target") as folder:
    for name in "abc":
        (folder / name).write_text("new")
""",
    "index": """
from torchwheel.index.writer import IndexedWheel, build_index
build_index([IndexedWheel(path, ("cpu",)) for path in root.glob("*.whl")], root / "target")
""",
    "wheel": """
(root / "making").mkdir()
(root / "making" / "new").write_bytes(b"new")
files.move_into_place(root / "making" / "new", root / "target")
""",
    "sweep": """
new = root / ".target.0123abcd.temporary"
new.mkdir()
(new / "a").write_text("new")
files.sync_tree(new)
files._exchange(new, root / "target")  # and the writer is killed
files.remove_leftovers(root)
""",
    "removed": 'files.discard(root / "target")',
    "jit": """
import jitmaker
jitmaker.make_library(root / "target", jitmaker.wanted(), jitmaker.Builds(), jitmaker.Told())
""",
}
TWO_STEPS = "files._exchange = lambda one, other: False\n"


@pytest.fixture(scope="module")
def strace():
    program = shutil.which("strace")
    if program is None:
        pytest.skip("strace is not installed")
    if subprocess.run([program, "-qq", "true"], check=False, capture_output=True).returncode:
        pytest.skip("strace may not trace a program here")


def recorded(folder: Path, code: str):
    start = START.replace("TESTS", repr(str(Path(__file__).parents[1])))
    return record(folder, [sys.executable, "-c", start + code, str(folder)])


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "disk"
    (folder / "target" / "b").mkdir(parents=True)
    (folder / "target" / "a").write_text("old")
    (folder / "target" / "b" / "x").write_text("old")
    for number in range(2):
        make_wheel(folder, version=str(number))
    return folder


def as_file(folder: Path) -> None:
    shutil.rmtree(folder / "target")
    (folder / "target").write_text("old")


def visible(tree: Tree) -> Tree:
    """What a reader takes."""
    return below(tree, "target")


@pytest.mark.usefixtures("strace")
@pytest.mark.parametrize("what", ["file", "folder", "many", "index", "wheel", "sweep", "removed"])
def test_a_power_cut_leaves_the_old_or_the_new(folder, what, chance, keep_states):
    if what in ("file", "wheel"):
        as_file(folder)
    old_or_new(recorded(folder, PROGRAMS[what]), chance, keep_states)


@pytest.mark.usefixtures("strace")
def test_a_power_cut_keeps_the_pages_that_two_indexes_share(folder, chance, keep_states):
    first, _ = sorted(folder.glob("*.whl"))
    build_index([IndexedWheel(first, ("cpu",))], folder / "target")
    torn = folder / "target" / "cpu" / "index.json"
    torn.write_bytes(bytes(torn.stat().st_size))
    old, new = old_or_new(recorded(folder, PROGRAMS["index"]), chance, keep_states)
    same = {path for path, content in old.items() if content and new[path] == content}
    assert "target/cpu/index.html" in same, "it is a link to the old page"
    assert "target/cpu/index.json" not in same
    assert "target/cpu/demo/index.json" not in same


@pytest.fixture
def keep_states(request, keep):
    """Adds the states of a test's disk to the record."""

    def write(states: int, wrong: int) -> None:
        keep("power_cuts", request.node.name, {"states": states, "neither_old_nor_new": wrong})

    return write


def old_or_new(disk: Disk, chance: random.Random, keep_states) -> tuple[Tree, Tree]:
    """What a reader takes before and after, which is all that a power cut may leave."""
    every = list(states(disk, chance))
    old, new = visible(every[0][1]), visible(every[-1][1])
    assert old != new == visible(without_a_cut(disk)), "the last state is synced"
    seen = [visible(tree) for _, tree in every]
    wrong = [text for (text, _), tree in zip(every, seen, strict=True) if tree not in (old, new)]
    keep_states(len(every), len(wrong))
    assert not wrong, f"{len(wrong)} of {len(every)} states: {wrong[0]}"
    assert old in seen
    assert new in seen
    return old, new


@pytest.mark.usefixtures("strace")
def test_in_two_steps_the_old_folder_can_be_restored(folder, chance, keep_states):
    disk = recorded(folder, TWO_STEPS + PROGRAMS["folder"])
    every = list(states(disk, chance))
    old, new = visible(every[0][1]), visible(every[-1][1])
    away = 0
    for text, tree in every:
        if not (seen := visible(tree)):
            (aside,) = {path.split("/")[0] for path in tree if ".previous/" in path}
            seen = {
                path.replace(aside, "target", 1): content
                for path, content in below(tree, aside).items()
            }
            away += 1
        assert seen in (old, new), text
    keep_states(len(every), 0)
    assert away


@pytest.mark.usefixtures("strace")
def test_a_power_cut_leaves_no_half_entry_in_the_cache(tmp_path, chance, keep_states):
    folder = tmp_path / "disk"
    folder.mkdir()
    disk = recorded(folder, PROGRAMS["jit"])
    every = list(states(disk, chance, samples=10))
    last = without_a_cut(disk)
    (place,) = (path.rpartition("/")[0] for path in last if path.endswith("/entry.json"))
    new = below(last, place)
    assert len([path for path in new if not path.endswith("/")]) == 2
    seen = [below(tree, place) for _, tree in every]
    wrong = [entry for entry in seen if entry not in ({}, new)]
    keep_states(len(every), len(wrong))
    assert not wrong
    assert new in seen
