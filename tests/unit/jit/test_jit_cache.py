"""What the cache of libraries holds, what goes and what stays."""

import ctypes
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

import torchwheel_runtime
from jitmaker import Builds, CachedLibrary, Told, find_library, library_of, make_library, wanted
from otheruser import give_away
from torchwheel.caches import CACHES
from torchwheel.cli import main
from torchwheel_runtime.jit.lookup import jit_folder
from torchwheel_runtime.jit.store import list_items, prune_cache
from torchwheel_runtime.lock import fail_if_busy, hold_lock

# What goes and what stays.


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


def test_what_is_to_be_kept_stays(folder, libraries):
    prune_cache(folder, 0, keep=libraries[1].parent)
    assert [item.path for item in list_items(folder)] == [libraries[1].parent]
    assert find_library(folder, wanted("two", name="two").key) == CachedLibrary(libraries[1])


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

    def build(source, output):
        return Path(shutil.copyfile(loaded, output / "a.so"))

    library = make_library(folder, wanted(), build, Told())
    handle = ctypes.CDLL(str(library))
    handle.cbrt.restype, handle.cbrt.argtypes = ctypes.c_double, [ctypes.c_double]
    prune_cache(folder, 0)
    assert not library.exists()
    assert handle.cbrt(27.0) == pytest.approx(3.0)
    assert make_library(folder, wanted(), build, Told()) == library


# `torchwheel cache` as a user types it.


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHWHEEL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield jit_folder()
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def said(capsys, folder):
    """Runs the command; its status and what it printed, without the cache's folder."""

    def run(*arguments: str) -> tuple[int, str]:
        status = main(["cache", *arguments])
        out, err = capsys.readouterr()
        return status, (out + err).replace(str(folder), "FOLDER").replace(
            str(folder.parent), "CACHE"
        )

    return run


def test_an_empty_cache(said, folder):
    status, text = said("list", "jit")
    assert status == 0
    assert "0 libraries, 0 KiB; 0 work folders, 0 KiB (cap 2.0 GiB)\nFOLDER\n" in text
    assert said("list")[1].endswith("-\n0 KiB in CACHE\n")
    assert said("clean") == (0, "nothing to remove in CACHE\n")
    assert not folder.parent.exists(), "to look makes nothing"


def test_the_table(said, folder, golden):
    for age, name in enumerate(("ext.scale", "ext.a_name_that_is_far_too_long_for_its_column")):
        library = make_library(folder, wanted(name=name), Builds(500_000), Told())
        os.utime(library.parent, (1_700_000_000 + age, 1_700_000_000 + age))
    library.write_bytes(b"junk")
    status, text = said("list", "jit")
    golden("cache-list.txt", text)
    assert status == 0
    assert max(map(len, text.splitlines())) <= 80


@pytest.fixture
def caches(folder):
    """A cache of each kind with an entry of 1 MiB: toolkits last used in 2023, others now."""
    make_library(folder, wanted(), Builds(1 << 20), Told())
    for cache in CACHES[1:]:
        entry = folder.parent / cache.name / "entry"
        entry.mkdir(parents=True)
        (entry / "file").write_bytes(bytes(1 << 20))
        (folder.parent / cache.name / "entry.lock").touch()
    toolkit = folder.parent / "toolkits/entry"
    for path in (toolkit / "file", toolkit):
        os.utime(path, (1_700_000_000, 1_700_000_000))
    return folder.parent


def row_of(cache, text):
    """The words of the row of a cache, in one line."""
    (row,) = [row for row in text.splitlines() if row.startswith(f"{cache} ")]
    return " ".join(row.split())


def left(caches):
    return {cache.name for cache in CACHES if any((caches / cache.name).iterdir())}


NAMES_OF_ALL = {cache.name for cache in CACHES}


def test_a_table_of_all_caches(said, caches):
    status, text = said("list")
    rows = text.splitlines()
    assert status == 0
    assert max(map(len, rows)) <= 80
    for cache in CACHES:
        row = row_of(cache.name, text)
        size = "2.0" if cache.name == "jit" else "1.0"  # a library, and its work folder
        assert re.match(rf"{cache.name} {size} MiB 20\d\d-\d\d-\d\d \d\d:\d\d [a-zC]", row)
    assert row_of("toolkits", text).startswith("toolkits 1.0 MiB 2023-11-14 22:13 CUDA toolkits")
    assert rows[-1] == "13.0 MiB in CACHE"
    assert said("list", "toolkits")[1].splitlines()[2].split() == [
        *("entry", "1.0", "MiB", "2023-11-14", "22:13")
    ]


def test_clean_says_what_went_and_what_stayed(said, caches):
    for words in (["--dry-run"], ["--dry-run", "--older-than", "30d"]):
        assert row_of("toolkits", said("clean", *words)[1]) == "toolkits 1.0 MiB 0 KiB"
        assert left(caches) == NAMES_OF_ALL
    text = said("clean", "--older-than", "30d")[1]
    assert row_of("toolkits", text) == "toolkits 1.0 MiB 0 KiB"
    assert row_of("smoke", text) == "smoke 0 KiB 1.0 MiB"
    assert left(caches) == NAMES_OF_ALL - {"toolkits"}
    assert row_of("smoke", said("clean", "smoke")[1]) == "smoke 1.0 MiB 0 KiB"
    assert left(caches) == NAMES_OF_ALL - {"toolkits", "smoke"}
    assert said("clean")[0] == 0
    assert left(caches) == set()


def test_clean_follows_no_link(said, caches, tmp_path):
    outside = tmp_path / "outside"
    (outside / "folder").mkdir(parents=True)
    (outside / "folder/file").write_bytes(bytes(1 << 20))
    (caches / "build/link").symlink_to(outside)
    (caches / "torch/entry/link").symlink_to(outside)
    shutil.rmtree(caches / "sdists")
    (caches / "sdists").symlink_to(outside)
    assert row_of("build", said("clean")[1]) == "build 1.0 MiB 0 KiB"
    assert left(caches) == {"sdists"}
    assert (outside / "folder/file").stat().st_size == 1 << 20


def test_clean_leaves_what_a_process_uses(said, caches, folder):
    """A build holds the cache as a whole, or the target of a library."""
    (target,) = (path for path in folder.iterdir() if path.is_dir())
    use = "import sys\nfrom torchwheel_runtime.toolkit.cache import cache_folder\ncache_folder()\n"
    use += "print(flush=True)\nsys.stdin.read()\n"
    pkg = Path(torchwheel_runtime.__file__).parents[1]
    env = {**os.environ, "PYTHONPATH": str(pkg)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", use], env=env, **pipes) as build:
        build.stdout.readline()
        text = said("clean")[1]
        assert row_of("toolkits", text) == "toolkits 0 KiB 1.0 MiB in use"
        assert row_of("jit", text) == "jit 2.0 MiB 0 KiB"
        assert left(caches) == NAMES_OF_ALL - {"jit"}
        build.stdin.close()
    make_library(folder, wanted(), Builds(1 << 20), Told())
    with hold_lock(folder / f"{target.name}.lock", fail_if_busy):
        assert "in use" in said("clean", "jit")[1]
        with hold_lock(caches / "smoke/entry.lock", fail_if_busy):
            assert "in use" in said("clean", "smoke")[1]
    assert said("clean")[0] == 0
    assert left(caches) == set()


def test_clean_removes_what_is_corrupt_whatever_its_age(said, folder):
    for name in ("one", "two"):
        library = make_library(folder, wanted(name=name), Builds(), Told())
    library.write_bytes(b"junk")
    said("clean", "jit", "--older-than", "30d")
    assert there(folder) == ["one"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("clean", "--older-than", "30"), 'torchwheel: --older-than="30": an age expected, e.g. "'),
        (("clean", "nope"), 'torchwheel: no cache "nope"; expected one of: jit, toolkits, '),
        (("list", "toolkit"), 'torchwheel: no cache "toolkit"; did you mean "toolkits"?'),
    ],
)
def test_a_wrong_call_is_one_line(said, folder, arguments, message):
    make_library(folder, wanted(), Builds(), Told())
    status, text = said(*arguments)
    assert status == 2
    assert text.startswith(message)
    assert text.count("\n") == 1


def test_a_folder_of_another_user_is_one_line(said, folder):
    folder.mkdir(parents=True)
    give_away(folder)
    for action in ("list", "clean"):
        status, text = said(action, "jit")
        assert status == 1
        assert text == (
            "torchwheel: FOLDER: belongs to user 65534, you are 0; "
            "set TORCHWHEEL_CACHE to a folder of your own\n"
        )


def test_an_action_must_be_named(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["cache"])
    assert stop.value.code == 2
    assert "ACTION" in capsys.readouterr().err
