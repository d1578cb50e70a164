"""What goes and what stays."""

import ctypes
import os
import shutil
from pathlib import Path

import pytest

from jitmaker import Builds, CachedLibrary, Told, find_library, library_of, make_library, wanted
from torchwheel.jit.store import list_items, prune_cache
from torchwheel.lock import fail_if_busy, hold_lock

NAMES = ("one", "two", "three")


@pytest.fixture
def libraries(folder):
    """One of 1000, 2000 and 3000 bytes, last used in that order; their work folders after them."""
    made = []
    for age, name in enumerate(NAMES, 1):
        made.append(make_library(folder, wanted(name, name=name), Builds(1000 * age), Told()))
        work, entry = sorted(
            made[-1].parents[1].iterdir(), key=lambda path: path != made[-1].parent
        )
        os.utime(work, (age, age))
        os.utime(entry, (10 + age, 10 + age))
    return made


def there(folder):
    return [
        item.path.parent.name.partition("-")[0] for item in list_items(folder) if item.is_library
    ]


def test_items_are_in_the_order_of_their_last_use(folder, libraries):
    found = list_items(folder)
    assert [item.is_library for item in found] == [True] * 3 + [False] * 3
    assert [item.used for item in found] == [1, 2, 3, 11, 12, 13]
    assert there(folder) == list(NAMES)
    sizes = [sum(file.stat().st_size for file in library.parent.iterdir()) for library in libraries]
    assert [item.size for item in found[:3]] == sizes


def test_below_the_cap_nothing_goes(folder, libraries):
    total = sum(item.size for item in list_items(folder))
    assert prune_cache(folder, total) == ([], list_items(folder))


def test_the_least_recently_used_goes_until_the_cap_holds(folder, libraries):
    total = sum(item.size for item in list_items(folder))
    gone, stayed = prune_cache(folder, total - 1)
    assert [item.path for item in gone] == [libraries[0].parent]
    assert sum(item.size for item in stayed) <= total - 1
    gone, stayed = prune_cache(folder, 4000)
    assert there(folder) == []
    assert sum(item.size for item in list_items(folder)) <= 4000


def test_what_is_old_goes(folder, libraries):
    prune_cache(folder, 1 << 30, before=3)
    assert there(folder) == ["three"]
    assert len(list_items(folder)) == 4


def test_what_is_to_be_kept_stays(folder, libraries):
    prune_cache(folder, 0, keep=libraries[1].parent)
    assert [item.path for item in list_items(folder)] == [libraries[1].parent]
    assert find_library(folder, wanted("two", name="two").key) == CachedLibrary(libraries[1])


def test_what_is_corrupt_goes_where_that_is_asked_for(folder, libraries):
    libraries[2].write_bytes(b"junk")
    assert prune_cache(folder, 1 << 30)[0] == []
    gone, _ = prune_cache(folder, 1 << 30, corrupt=True)
    assert [item.path for item in gone] == [libraries[2].parent]
    assert there(folder) == ["one", "two"]


def test_nothing_at_all_is_left_of_what_is_gone(folder, libraries):
    (folder / ".left.abc.temporary").mkdir()
    (libraries[0].parents[1] / ".left.abc.temporary").touch()
    prune_cache(folder, 0)
    assert list(folder.iterdir()) == []


def test_what_a_build_is_busy_with_stays(folder, libraries):
    target = libraries[0].parents[1]
    with hold_lock(folder / f"{target.name}.lock", fail_if_busy):
        gone, stayed = prune_cache(folder, 0)
    assert len(gone) == 4
    assert {item.path.parent for item in stayed} == {target}
    assert libraries[0].read_bytes() == library_of("one")


def test_what_a_link_leads_to_is_neither_counted_nor_touched(folder, libraries, tmp_path):
    target = libraries[0].parents[1]
    target.rename(tmp_path / "away")
    target.symlink_to(tmp_path / "away")
    assert there(folder) == ["two", "three"]
    prune_cache(folder, 0)
    assert (tmp_path / "away" / libraries[0].parent.name / "ext_scale.so").exists()


def test_what_the_cache_did_not_make_stays(folder, libraries):
    (folder / "notes").mkdir()
    (folder / "notes" / "mine").touch()
    prune_cache(folder, 0)
    assert [str(path.relative_to(folder)) for path in folder.rglob("*")] == ["notes", "notes/mine"]


def test_a_library_that_is_loaded_survives(folder):
    """Its file goes; the process that has it keeps it."""
    paths = [line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines()]
    loaded = next((path for path in paths if "/libm.so" in path or "/libm-" in path), None)
    if loaded is None:
        pytest.skip("this Python has no shared libm to copy")

    def build(work):
        return Path(shutil.copyfile(loaded, work.folder / "a.so"))

    library = make_library(folder, wanted(), build, Told())
    handle = ctypes.CDLL(str(library))
    handle.cbrt.restype, handle.cbrt.argtypes = ctypes.c_double, [ctypes.c_double]
    prune_cache(folder, 0)
    assert not library.exists()
    assert handle.cbrt(27.0) == pytest.approx(3.0)
    assert make_library(folder, wanted(), build, Told()) == library
