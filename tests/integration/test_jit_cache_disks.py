"""Real disks: full ones, ones that cannot be written, and folders of other users."""

import contextlib
import subprocess
from pathlib import Path

import pytest

from jitmaker import (
    Builds,
    CachedLibrary,
    Told,
    find_library,
    library_of,
    make_library,
    wanted,
)
from otheruser import NOBODY, as_nobody
from smalldisk import small_disk
from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.files import discard
from torchwheel_runtime.jit.store import prune_cache

pytestmark = pytest.mark.integration


@pytest.fixture
def disk(tmp_path):
    """Mounts a small file system; `disk(options)` again changes it."""
    with contextlib.ExitStack() as mounted:
        changes = []

        def mount(options: str) -> Path:
            if changes:
                changes[0](options)
            else:
                changes.append(mounted.enter_context(small_disk(tmp_path / "disk", options)))
            return tmp_path / "disk" / "jit"

        yield mount


def fails_for_space(folder, text, size):
    with pytest.raises(TorchwheelError, match=rf"^no space left on the disk of {folder}\S* or "):
        make_library(folder, wanted(text), Builds(size), Told())


@pytest.mark.parametrize(
    "size", [6 << 20, 3 << 20], ids=["no room for the build", "no room for the entry"]
)
def test_a_full_disk_is_one_line_and_what_is_there_stays(disk, size):
    folder = disk("size=4m")
    library = make_library(folder, wanted("small"), Builds(), Told())
    for _ in range(2):
        fails_for_space(folder, "large", size)
        assert find_library(folder, wanted("small").key) == CachedLibrary(library)
        assert find_library(folder, wanted("large").key) == CachedLibrary()
        assert not [path for path in folder.rglob("*") if ".temporary" in path.name]
    disk("size=64m")
    assert make_library(folder, wanted("large"), Builds(size), Told()).stat().st_size == size


def test_a_disk_without_a_free_file_is_one_line_and_can_be_pruned(disk):
    folder = disk("size=4m,nr_inodes=64")
    library = make_library(folder, wanted("first"), Builds(), Told())

    def fill():
        with contextlib.suppress(OSError):
            for number in range(64):
                (folder.parent / f"full{number}").touch()

    fill()
    failed = []
    # One file more each time: each that is made is once the one for which there is no room.
    while len(failed) < 20:
        try:
            make_library(folder, wanted("more", name="other"), Builds(), Told())
            break
        except TorchwheelError as error:
            failed.append(str(error))
        assert find_library(folder, wanted("first").key) == CachedLibrary(library)
        assert not list(folder.rglob("*.temporary"))
        next(folder.parent.glob("full*")).unlink()
    assert 8 < len(failed) < 20
    assert {line[: len("no space left on the disk")] for line in failed} == {
        "no space left on the disk"
    }
    fill()
    prune_cache(folder, 0)
    assert list(folder.iterdir()) == []


def test_from_a_disk_that_cannot_be_written_libraries_are_loaded_and_new_ones_are_ones_own(
    disk, temporary
):
    folder = disk("size=4m")
    library = make_library(folder, wanted("there"), Builds(), Told())
    disk("ro")
    told, builds = Told(), Builds()
    assert find_library(folder, wanted("there").key) == CachedLibrary(library)
    assert make_library(folder, wanted("there"), builds, told) == library
    assert (builds.count, told.said) == (0, [])
    other = make_library(folder, wanted("new"), builds, told)
    assert other.read_bytes() == library_of("new")
    assert told.said == [
        f"{folder}: cannot be written (Read-only file system): ext.scale is built for this process "
        "alone and again next time; set TORCHWHEEL_CACHE to a folder that can be written",
        "ext.scale: building it",
    ]
    assert other.is_relative_to(temporary)


def test_what_is_corrupt_on_such_a_disk_is_said_and_built_for_oneself(disk, temporary):
    folder = disk("size=4m")
    make_library(folder, wanted(), Builds(), Told()).write_bytes(b"bent")
    disk("ro")
    found = find_library(folder, wanted().key)
    assert found.library is None
    assert found.problem
    assert found.problem.endswith("ext_scale.so: 4 bytes, 1000 expected; it could not be removed")
    assert make_library(folder, wanted(), Builds(), Told()).is_relative_to(temporary)


def test_another_user_who_was_there_first_is_refused(public, temporary):
    """TORCHWHEEL_CACHE=/tmp: whoever makes /tmp/jit first might hand out libraries to all."""
    cache = public / "tmp"
    cache.mkdir()
    cache.chmod(0o1777)
    as_nobody(lambda: make_library(cache / "jit", wanted(), Builds(), Told()))
    assert len(list((cache / "jit").glob("*/*/ext_scale.so"))) == 1
    assert find_library(cache / "jit", wanted().key) == CachedLibrary(
        problem=f"{cache / 'jit'}: belongs to user {NOBODY}, you are 0; "
        "set TORCHWHEEL_CACHE to a folder of your own"
    )
    told = Told()
    library = make_library(cache / "jit", wanted(), Builds(), told)
    assert library.is_relative_to(temporary)
    assert told.said[1] == "ext.scale is built for this process alone and again next time"


def states(folder):
    """All that a writer changes; a reader changes the time of the last read."""
    found = {path: path.stat() for path in folder.rglob("*")}
    return {path: (*one[:7], one.st_mtime_ns, one.st_ctime_ns) for path, one in found.items()}


def test_what_root_made_is_used_by_another_user_who_writes_nothing(public):
    """A cache for all users: root fills it, and `chmod -R go=rX` opens it for reading."""
    folder = public / "cache" / "jit"
    library = make_library(folder, wanted(), Builds(), Told())
    subprocess.run(["chmod", "-R", "go=rX", str(folder.parent)], check=True)
    before = states(folder)

    def use():
        told, builds = Told(), Builds()
        assert make_library(folder, wanted(), builds, told) == library
        assert (builds.count, told.said) == (0, [])
        other = make_library(folder, wanted("two"), builds, told)
        assert not other.is_relative_to(public)
        assert told.said[0].startswith(f"{folder}: cannot be written (Permission denied): ")
        discard(other.parents[2])

    as_nobody(use)
    assert states(folder) == before


def test_another_user_sees_and_changes_nothing(public):
    folder = public / "cache" / "jit"
    library = make_library(folder, wanted(), Builds(), Told())

    def attack():
        for use in (library.read_bytes, (folder / "x").touch, lambda: list(folder.iterdir())):
            with pytest.raises(PermissionError):
                use()
        assert find_library(folder, wanted().key).library is None

    as_nobody(attack)
    assert find_library(folder, wanted().key) == CachedLibrary(library)


@pytest.mark.parametrize("closed", [False, True])
def test_what_another_user_planted_while_the_folder_was_open_is_not_loaded(
    public, temporary, closed
):
    folder = public / "cache" / "jit"
    library = make_library(folder, wanted(), Builds(), Told())
    copy = {path.name: path.read_bytes() for path in library.parent.iterdir()}
    prune_cache(folder, 0)
    folder.chmod(0o777)
    folder.parent.chmod(0o755)

    def plant():
        library.parent.mkdir(parents=True)
        for name, data in copy.items():
            (library.parent / name).write_bytes(data)

    as_nobody(plant)
    if closed:
        folder.chmod(0o700)
    found = find_library(folder, wanted().key)
    assert found.library is None
    assert found.problem == (
        f"{library.parents[1]}: belongs to user {NOBODY}, you are 0; removed"
        if closed
        else f"{folder}: others may write to it (mode 0777); run `chmod go-w {folder}`, or set "
        "TORCHWHEEL_CACHE to a folder of your own"
    )
    made = make_library(folder, wanted(), Builds(), Told())
    assert made.stat().st_uid == 0
    assert made.is_relative_to(folder if closed else temporary)


def test_ones_own_folder_without_write_permission_is_read_and_not_opened(public):
    public.chmod(0o1777)
    folder = public / "cache" / "jit"

    def use():
        library = make_library(folder, wanted(), Builds(), Told())
        folder.chmod(0o500)
        assert find_library(folder, wanted().key) == CachedLibrary(library)
        told = Told()
        other = make_library(folder, wanted("two"), Builds(), told)
        assert other.read_bytes() == library_of("two")
        assert not other.is_relative_to(folder)
        assert told.said[0].startswith(f"{folder}: cannot be written (Permission denied): ")
        assert folder.stat().st_mode & 0o777 == 0o500
        # A process that is not root is a user like any other: it cannot read this either.
        folder.chmod(0o700)
        library.chmod(0)
        found = find_library(folder, wanted().key)
        assert found.problem == f"{library}: cannot be read; removed"
        assert make_library(folder, wanted(), Builds(), Told()) == library
        discard(other.parents[2])

    as_nobody(use)
