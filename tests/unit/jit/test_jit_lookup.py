"""A lookup gives what was written, or nothing: every way an entry can be wrong is tried."""

import contextlib
import os
import shutil
import stat
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jitmaker import Builds, CachedLibrary, Told, find_library, library_of, make_library, wanted
from otheruser import give_away
from programmaker import run_python
from torchwheel_runtime.errors import MalformedError
from torchwheel_runtime.files import discard
from torchwheel_runtime.jit import lookup as verified_module
from torchwheel_runtime.jit.lookup import CorruptError, open_verified
from torchwheel_runtime.lock import fail_if_busy, hold_lock

KEY = wanted().key


def bend(path: Path, change) -> None:
    path.write_bytes(change(path.read_bytes()))


def entry(library: Path) -> Path:
    return library.with_name("entry.json")


def replace_with_link(path: Path) -> None:
    """An attack: the same bytes, but where another can change them."""
    cache = next(parent for parent in path.parents if parent.name == "cache")
    away = cache.with_name(f"away-{path.name}")
    path.rename(away)
    path.symlink_to(away)


def replace(path: Path, make) -> None:
    """Put something else in the place of a file or folder."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    make(path)


def open_to(path: Path, whom: int) -> None:
    path.chmod(path.stat().st_mode | whom)


WAYS = {
    "library truncated": lambda so: bend(so, lambda data: data[:-1]),
    "library empty": lambda so: bend(so, lambda _: b""),
    "library longer": lambda so: bend(so, lambda data: data + b"\0"),
    "library bit flipped": lambda so: bend(so, lambda data: bytes([data[0] ^ 1]) + data[1:]),
    "library missing": Path.unlink,
    "library a link": replace_with_link,
    "library a fifo": lambda so: replace(so, os.mkfifo),
    "library a folder": lambda so: replace(so, Path.mkdir),
    "library open to the group": lambda so: open_to(so, stat.S_IWGRP),
    "library open to all": lambda so: open_to(so, stat.S_IWOTH),
    "library of another": give_away,
    "entry truncated": lambda so: bend(entry(so), lambda data: data[: len(data) // 2]),
    "entry empty": lambda so: bend(entry(so), lambda _: b""),
    "entry not JSON": lambda so: bend(entry(so), lambda _: b"\xff{"),
    "entry not ours": lambda so: bend(entry(so), lambda _: b'{"size": 1000}'),
    "entry too long": lambda so: bend(entry(so), lambda data: b" " * (1 << 16) + data),
    "entry of another library": lambda so: bend(
        entry(so), lambda data: data.replace(KEY.content.encode(), b"0" * 32)
    ),
    "entry names a file elsewhere": lambda so: bend(
        entry(so), lambda data: data.replace(b"ext_scale.so", b"../ext_scale.so")
    ),
    "entry missing": lambda so: entry(so).unlink(),
    "entry a link": lambda so: replace_with_link(entry(so)),
    "entry a fifo": lambda so: replace(entry(so), os.mkfifo),
    "entry open to the group": lambda so: open_to(entry(so), stat.S_IWGRP),
    "entry of another user": lambda so: give_away(entry(so)),
    "folder a link": lambda so: replace_with_link(so.parent),
    "folder a file": lambda so: replace(so.parent, Path.touch),
    "folder open to all": lambda so: open_to(so.parent, stat.S_IWOTH),
    "folder of another user": lambda so: give_away(so.parent),
    "target a link": lambda so: replace_with_link(so.parents[1]),
    "target a file": lambda so: replace(so.parents[1], Path.touch),
    "target open to all": lambda so: open_to(so.parents[1], stat.S_IWOTH),
    "target of another user": lambda so: give_away(so.parents[1]),
}


def test_a_library_that_is_there_is_found(folder, library):
    assert find_library(folder, KEY) == CachedLibrary(library)
    assert library.read_bytes() == library_of("one")


def test_nothing_is_found_where_nothing_is_and_nothing_is_made(tmp_path):
    assert find_library(tmp_path / "none" / "jit", KEY) == CachedLibrary()
    assert not (tmp_path / "none").exists()
    (tmp_path / "jit").mkdir()
    assert find_library(tmp_path / "jit", KEY) == CachedLibrary()
    assert not list((tmp_path / "jit").iterdir())


def test_another_content_is_not_found(folder, library):
    assert find_library(folder, wanted("two").key) == CachedLibrary()


@pytest.mark.parametrize("locked", [False, True], ids=["free", "locked"])
@pytest.mark.parametrize("way", WAYS)
def test_what_is_wrong_counts_as_absent_and_is_built_again(folder, library, way, locked):
    """The lookup removes it, unless another build holds the lock."""
    WAYS[way](library)
    lock = hold_lock(folder / f"{KEY.target}.lock", fail_if_busy)
    with lock if locked else contextlib.nullcontext():
        found = find_library(folder, KEY)
    assert found.library is None
    assert found.problem
    assert found.problem.startswith(str(library.parents[1]))
    assert found.problem.endswith("; it could not be removed" if locked else "; removed")
    assert "\n" not in found.problem
    assert locked or find_library(folder, KEY) == CachedLibrary(), "it says so once"
    assert not [path for path in folder.rglob("*") if ".temporary" in path.name]
    builds = Builds()
    assert make_library(folder, wanted(), builds, Told()) == library
    assert builds.count == 1
    assert find_library(folder, KEY) == CachedLibrary(library)


@pytest.mark.parametrize(
    "way", ["library a link", "entry a link", "folder a link", "target a link"]
)
def test_where_a_link_leads_nothing_is_touched(folder, library, way):
    WAYS[way](library)
    (away,) = folder.parent.parent.glob("away-*")
    before = away.stat()
    make_library(folder, wanted(), Builds(), Told())
    for fact in ("st_mtime_ns", "st_mode", "st_size"):
        assert getattr(away.stat(), fact) == getattr(before, fact)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(data=st.data())
def test_any_change_of_a_librarys_bytes_is_seen(folder, library, data):
    whole = library_of("one")
    at = data.draw(st.integers(0, len(whole) - 1))
    bit = data.draw(st.integers(0, 7))
    library.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :])
    with pytest.raises(CorruptError, match="SHA-256"):
        open_verified(folder, KEY)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(data=st.binary(max_size=100))
def test_any_other_entry_is_corrupt(folder, library, data):
    entry(library).write_bytes(data)
    with pytest.raises(CorruptError):
        open_verified(folder, KEY)


def test_a_lookup_is_the_last_use(folder, library):
    os.utime(library.parent, (1, 1))
    find_library(folder, KEY)
    assert time.time() - library.parent.stat().st_mtime < 60


def test_a_use_that_cannot_be_noted_is_no_error(folder, library, monkeypatch):
    def refuse(path):
        raise OSError(30, "Read-only file system", str(path))

    monkeypatch.setattr(os, "utime", refuse)
    assert find_library(folder, KEY) == CachedLibrary(library)


def test_a_folder_that_is_ones_own_link_is_used(folder, library):
    away = folder.with_name("away")
    folder.rename(away)
    folder.symlink_to(away)
    assert find_library(folder, KEY) == CachedLibrary(away / library.relative_to(folder))


def test_what_is_no_fault_of_the_entry_leaves_it(folder, library, monkeypatch):
    def refuse(*_, **__):
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        found = find_library(folder, KEY)
    assert found == CachedLibrary(problem=f"{folder}: Too many open files")
    assert find_library(folder, KEY) == CachedLibrary(library)


def test_a_lookup_imports_the_standard_library_alone():
    """It is a part of an extension's import."""
    code = """
        import sys
        before = set(sys.modules)
        import torchwheel_runtime.jit.lookup
        torchwheel_runtime.jit.lookup.jit_folder()
        tops = {name.partition(".")[0] for name in set(sys.modules) - before}
        print(*sorted(tops - set(sys.stdlib_module_names)))
    """
    assert run_python(code).stdout.split() == ["torchwheel_runtime"]


def test_what_is_removed_while_it_is_read_is_absent_and_not_corrupt(folder, library, monkeypatch):
    def read_too_late(*_):
        discard(library.parent)
        raise MalformedError("x", "half of it")

    monkeypatch.setattr(verified_module, "parse_json", read_too_late)
    assert find_library(folder, KEY) == CachedLibrary()
