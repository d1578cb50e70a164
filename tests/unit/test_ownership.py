"""Which folders and files are used: those that only this user and root can change."""

import errno
import grp
import os
import pwd
import stat
import struct
import sys
from pathlib import Path

import pytest

from otheruser import NOBODY, give_away
from programmaker import program
from torchwheel_runtime import ownership
from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.fetch import Fetcher
from torchwheel_runtime.ownership import (
    UntrustedError,
    check_tree,
    closed_folder,
    find_program,
    let_others_read,
    trusted_folder,
    trusted_path,
)

ELSEWHERE = "set TORCHWHEEL_CACHE to a folder of your own"


@pytest.fixture(autouse=True)
def no_private_groups(monkeypatch):
    monkeypatch.setattr(ownership, "_is_private_group", lambda _: False)


def theirs(path: Path, fix: str = ELSEWHERE) -> str:
    """Give a file or folder away; returns what is said of it."""
    give_away(path)
    return f"{path}: belongs to user {NOBODY}, you are 0; {fix}"


def opened(path: Path, mode: int = 0o777, fix: str = ELSEWHERE) -> str:
    """Let others write to a file or folder; returns what is said of it."""
    path.chmod(mode)
    return f"{path}: others may write to it (mode {mode:04o}); run `chmod go-w {path}`, or {fix}"


def linked(folder: Path, target: str) -> Path:
    """Put a link in the place of a folder; returns the folder."""
    away = folder.with_name("away")
    folder.rename(away)
    folder.symlink_to(away if target == "absolute" else "away")
    return away


def link_of_another(folder: Path) -> str:
    linked(folder, "absolute")
    return theirs(folder)


REFUSED = {
    "the folder is another user's": theirs,
    "a parent is another user's": lambda folder: theirs(folder.parent),
    "all may write": opened,
    "all may write, and it is sticky": lambda folder: opened(folder, 0o1777),
    "the group may write": lambda folder: opened(folder, 0o775),
    "all may write to a parent": lambda folder: opened(folder.parent),
    "the group may write to a parent": lambda folder: opened(folder.parent, 0o770),
    "a link of another user's": link_of_another,
    "a link to an open folder": lambda folder: opened(linked(folder, "relative")),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_others_can_change_is_refused_in_one_line(public, case):
    folder = public / "parent" / "cache"
    folder.mkdir(parents=True)
    line = REFUSED[case](folder)
    for use in (trusted_path, trusted_folder, closed_folder, check_tree):
        with pytest.raises(UntrustedError) as refused:
            use(folder)
        assert str(refused.value) == line


@pytest.mark.parametrize("mode", [0o1777, 0o1775])
def test_a_sticky_folder_may_lead_to_ones_own(public, mode):
    folder = public / "parent" / "cache"
    folder.mkdir(parents=True)
    folder.parent.chmod(mode)
    assert trusted_path(folder) == folder


def test_ones_own_links_are_followed(public):
    (public / "real" / "cache").mkdir(parents=True)
    (public / "absolute").symlink_to(public / "real")
    (public / "relative").symlink_to("real/../real/.")
    for name in ("absolute", "relative", "real/../absolute"):
        assert trusted_path(public / name / "cache") == public / "real" / "cache"


def test_what_roots_is_others_use(public, monkeypatch):
    if os.geteuid():
        pytest.skip("the folder must be root's")
    (public / "cache").mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: NOBODY)
    assert trusted_path(public / "cache") == public / "cache"


def test_a_user_namespace_without_root_has_parents_of_an_unknown_user(public, monkeypatch):
    """Who owns the root folder is trusted above the cache, not in it."""
    (public / "cache").mkdir()
    give_away(public / "cache")
    monkeypatch.setattr(os, "geteuid", lambda: NOBODY)
    lstat = Path.lstat

    def unmapped(path):
        found = list(lstat(path))
        found[stat.ST_UID] = 7777 if found[stat.ST_UID] == 0 else found[stat.ST_UID]
        return os.stat_result(found)

    monkeypatch.setattr(Path, "lstat", unmapped)
    assert trusted_path(public / "cache") == public / "cache"
    with pytest.raises(UntrustedError, match="belongs to user 7777"):
        trusted_path(public)


def test_a_folder_is_made_private_whatever_the_umask(public):
    before = os.umask(0)
    try:
        assert trusted_folder(public / "a" / "b") == public / "a" / "b"
    finally:
        os.umask(before)
    for folder in (public / "a", public / "a" / "b"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def ring(public: Path) -> Path:
    (public / "ring").symlink_to("ring2")
    (public / "ring2").symlink_to("ring")
    return public / "ring"


IMPOSSIBLE = {
    "below a file": (lambda public: public / "file" / "cache", errno.ENOTDIR),
    "a file": (lambda public: public / "file", errno.ENOTDIR),
    "a ring of links": (ring, errno.ELOOP),
    "a long name": (lambda public: public / ("x" * 5000), errno.ENAMETOOLONG),
}


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_where_no_folder_can_be_is_one_line(public, case):
    (public / "file").touch()
    place, number = IMPOSSIBLE[case]
    with pytest.raises(TorchwheelError, match=f"found: {os.strerror(number)}; set TORCH") as error:
        trusted_folder(place(public))
    assert "\n" not in str(error.value)


@pytest.fixture
def tree(public):
    (public / "cache" / "bin").mkdir(parents=True)
    (public / "cache" / "bin" / "nvcc").touch(mode=0o755)
    (public / "cache" / "lib64").symlink_to("lib")
    return public / "cache"


def test_a_tree_of_ones_own_is_used(tree):
    check_tree(tree)


@pytest.mark.parametrize("name", ["bin", "bin/nvcc", "lib64", "."])
def test_what_another_user_put_into_a_tree_is_found(tree, name):
    give_away(tree / name)
    with pytest.raises(UntrustedError, match=f"belongs to user {NOBODY}") as refused:
        check_tree(tree)
    assert refused.value.place == tree / name


def test_an_open_file_of_a_tree_counts_where_others_reach_it(tree):
    (tree / "bin" / "nvcc").chmod(0o777)
    with pytest.raises(UntrustedError, match=rf"\(mode 0777\); remove {tree}, or set"):
        check_tree(tree)
    tree.chmod(0o700)
    check_tree(tree)


def test_a_folder_is_closed_once_nothing_in_it_is_open(tree):
    (tree / "bin").chmod(0o777)
    with pytest.raises(UntrustedError):
        closed_folder(tree)
    (tree / "bin").chmod(0o755)
    assert closed_folder(tree) == tree
    assert stat.S_IMODE(tree.stat().st_mode) == 0o700
    (tree / "bin").chmod(0o777)
    closed_folder(tree)


@pytest.mark.parametrize("mode", [0o777, 0o700])
def test_what_is_made_can_be_read_by_others_and_not_written(tree, mode):
    for path in (tree, tree / "bin", tree / "bin" / "nvcc"):
        path.chmod(mode)
    let_others_read(tree)
    for path in (tree, tree / "bin", tree / "bin" / "nvcc"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o755


USER = pwd.struct_passwd(("me", "x", 1000, 1000, "", "/home/me", "/bin/sh"))
GROUPS = {
    "mine": (grp.struct_group(("me", "x", 1000, [])), True),
    "mine by name too": (grp.struct_group(("me", "x", 1000, ["me"])), True),
    "with another member": (grp.struct_group(("me", "x", 1000, ["me", "you"])), False),
    "of all users": (grp.struct_group(("users", "x", 1000, [])), False),
    "not the first": (grp.struct_group(("me", "x", 1001, [])), False),
}


@pytest.mark.parametrize("case", GROUPS)
def test_a_group_of_ones_own_is_nobody_else(case, monkeypatch):
    monkeypatch.undo()
    group, private = GROUPS[case]
    monkeypatch.setattr(pwd, "getpwuid", lambda _: USER)
    monkeypatch.setattr(grp, "getgrgid", lambda _: group)
    assert ownership._is_private_group(group.gr_gid) is private


def test_a_user_or_group_without_an_entry_is_no_private_group(monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)
    assert not ownership._is_private_group(1000)


@pytest.fixture
def private_groups(monkeypatch):
    """The group of every file has this user alone."""
    monkeypatch.setattr(ownership, "_is_private_group", lambda _: True)


def set_acl(path: Path, name: str) -> None:
    """Give a file or folder an ACL that lets user nobody write: `setfacl -m u:nobody:rwx`."""
    # Tag, permissions and user of each entry: owner, named user, group, mask, others.
    entries = [(1, 7, -1), (2, 7, NOBODY), (4, 5, -1), (16, 7, -1), (32, 5, -1)]
    packed = b"".join(struct.pack("<HHi", *entry) for entry in entries)
    try:
        os.setxattr(path, f"system.posix_acl_{name}", struct.pack("<I", 2) + packed)
    except OSError as error:
        if error.errno != errno.ENOTSUP:
            raise
        pytest.skip("the file system has no ACLs")


@pytest.mark.skipif(sys.platform != "linux", reason="POSIX ACLs are read on Linux")
@pytest.mark.usefixtures("private_groups")
@pytest.mark.parametrize("name", ["access", "default"])
@pytest.mark.parametrize("place", ["cache", "."])
def test_with_an_acl_a_group_of_ones_own_is_not_all_that_may_write(public, name, place):
    folder = public / "parent" / "cache"
    folder.mkdir(parents=True)
    changed = (folder.parent / place).resolve()
    changed.chmod(0o775)
    assert trusted_path(folder) == folder
    set_acl(changed, name)
    for use in (trusted_path, trusted_folder, closed_folder, check_tree):
        with pytest.raises(UntrustedError, match=r"\(mode 0775\); run `chmod go-w") as refused:
            use(folder)
        assert refused.value.place == changed


@pytest.mark.skipif(sys.platform != "linux", reason="POSIX ACLs are read on Linux")
@pytest.mark.usefixtures("private_groups")
def test_an_acl_counts_on_a_file_of_a_tree_and_on_an_open_one(tree):
    nvcc = tree / "bin" / "nvcc"
    nvcc.chmod(0o775)
    check_tree(tree)
    set_acl(nvcc, "access")
    with pytest.raises(UntrustedError, match=r"\(mode 0775\)"):
        check_tree(tree)
    with nvcc.open() as file:
        assert ownership.untrusted_because(file.fileno())
    # The remedy takes the right to write away from all that the ACL names.
    nvcc.chmod(0o755)
    check_tree(tree)


def link_into_an_open_folder(tool: Path, fix: str) -> str:
    away = program(tool.parent.with_name("away") / "tool")
    tool.unlink()
    tool.symlink_to(away)
    return opened(away.parent, fix=fix)


PLANTED = {
    "theirs": theirs,
    "in their folder": lambda tool, fix: theirs(tool.parent, fix),
    "an open file": lambda tool, fix: opened(tool, fix=fix),
    "in an open folder": lambda tool, fix: opened(tool.parent, fix=fix),
    "a link into an open folder": link_into_an_open_folder,
}


@pytest.mark.parametrize("plant", PLANTED.values(), ids=PLANTED)
def test_a_program_that_others_can_exchange_is_skipped_and_the_next_is_found(public, plant):
    planted = program(public / "planted" / "tool")
    good = program(public / "good" / "tool")
    line = plant(planted, f"take {planted.parent} off the PATH")
    said = []
    path = os.pathsep.join(map(str, (public / "none", planted.parent, good.parent)))
    assert find_program("tool", path, lambda error: said.append(str(error))) == str(good)
    assert said == [f"{planted}: is not used: {line}"]
    assert find_program("tool", str(planted.parent), said.append) is None


def test_a_tool_beside_python_may_be_of_its_owner(public, monkeypatch):
    """A tool cache of CI and a conda of an image belong to another user than the job's."""
    cache = public / "toolcache"
    python, tool = program(cache / "python" / "bin" / "python"), program(cache / "tool" / "tool")
    for path in (cache, *cache.rglob("*")):
        give_away(path)
    cache.chmod(0o777)
    said = []
    assert find_program("tool", str(tool.parent), said.append) is None
    monkeypatch.setattr(sys, "executable", str(python))
    ownership._who_can_change_python.cache_clear()
    try:
        assert find_program("tool", str(tool.parent), said.append) == str(tool)
    finally:
        ownership._who_can_change_python.cache_clear()
    assert len(said) == 1


def test_ones_own_tools_are_found_through_links(public):
    tool = program(public / "shims" / "real" / "tool")
    (public / "bin").mkdir()
    (public / "bin" / "tool").symlink_to(tool)
    assert find_program("tool", str(public / "bin"), print) == str(public / "bin" / "tool")


@pytest.mark.parametrize("name", ["a\0b", "\ud800"])
def test_a_name_that_no_file_can_have_names_none(name, tmp_path):
    with pytest.raises(FileNotFoundError):
        ownership.open_regular(tmp_path / name)
    assert Fetcher().page("file:///tmp/%00/", "*/*") is None
