"""A library is built once, and anew only where it must be."""

import dataclasses
import errno
import fcntl
import os
import stat
import threading

import pytest

from jitmaker import Builds, Told, find_library, library_of, make_library, wanted
from programmaker import run_python
from torchwheel_runtime.errors import TorchwheelError, UsageError, program_error
from torchwheel_runtime.files import private_folder
from torchwheel_runtime.jit import make as making
from torchwheel_runtime.jit.lookup import open_verified
from torchwheel_runtime.process import NotRunError


def everything(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_a_library_is_built_once(folder):
    builds, told = Builds(), Told()
    library = make_library(folder, wanted(), builds, told)
    assert library.read_bytes() == library_of("one")
    assert make_library(folder, wanted(), builds, told) == library
    assert builds.count == 1
    assert told.said == ["ext.scale: building it"]


def test_an_entry_says_what_the_library_is(folder, library):
    _, entry = open_verified(folder, wanted().key)
    assert (entry.name, entry.archs) == ("ext.scale", ("9.0",))
    assert (entry.toolkit, entry.torch) == ("CUDA 13.0.88, gcc 12.2.0", "2.13.0+cu130 stable")
    assert (entry.file, entry.size) == ("ext_scale.so", 1000)


def test_only_this_user_can_read_it_whatever_the_umask(folder):
    before = os.umask(0)
    try:
        library = make_library(folder, wanted(), Builds(), Told())
    finally:
        os.umask(before)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (folder.parent, folder)] == [0o700] * 2
    assert find_library(folder, wanted().key).library == library


def test_another_content_is_built_where_the_last_was_and_both_stay(folder, library):
    seen = []

    class Incremental(Builds):
        def __call__(self, source, output):
            seen.extend(path.name for path in output.iterdir())
            return super().__call__(source, output)

    other = make_library(folder, wanted("two"), Incremental(), Told())
    assert seen == ["ext_scale.so"], "what the last build left"
    assert other.read_bytes() == library_of("two")
    assert library.read_bytes() == library_of("one")


def test_other_facts_are_built_in_a_folder_of_their_own(folder):
    folders = []

    class Watched(Builds):
        def __call__(self, source, output):
            folders.append(output)
            return super().__call__(source, output)

    first = wanted()
    for toolkit in ("CUDA 13.0", "CUDA 13.1"):
        make_library(folder, dataclasses.replace(first, toolkit=toolkit), Watched(), Told())
    assert len(set(folders)) == 2


def test_a_build_sees_the_files_of_the_key_and_no_other(folder, library):
    def build(source, output):
        assert [path.name for path in source.iterdir()] == ["b.cu"]
        assert (source / "b.cu").read_bytes() == b"b"
        (output / "scale.cu").write_text("b")
        return Builds()(output, output)

    only = dataclasses.replace(wanted(), files={"b.cu": b"b"})
    assert make_library(folder, only, build, Told()).read_bytes() == library_of("b")


@pytest.mark.parametrize(
    ("kind", "parts", "says"),
    [
        (
            TorchwheelError,
            ("building a.cu failed: {}/a.cu(1)",),
            "building a.cu failed: {}/a.cu(1)",
        ),
        (NotRunError, ("{}/ninja", "does not start"), "{}/ninja: does not start"),
    ],
)
def test_a_failed_build_is_one_line_that_names_the_users_own_file(folder, kind, parts, says):
    def build(source, output):
        raise kind(*(part.format(source) for part in parts))

    with pytest.raises(kind) as error:
        make_library(folder, wanted(), build, Told())
    assert str(error.value) == says.format("/project")
    assert find_library(folder, wanted().key).library is None
    assert make_library(folder, wanted(), Builds(), Told()).is_file(), "the next one may succeed"


def test_objects_stay_after_a_mistake_and_go_after_a_build_that_did_not_end(folder):
    """Who did not end may have left compilers that write there still."""
    seen = []

    def build_and_raise(error):
        def build(source, output):
            seen.append([path.name for path in output.iterdir()])
            (output / "a.o").touch()
            raise error

        return build

    for error in (TorchwheelError("mistake"), KeyboardInterrupt(), TorchwheelError("mistake")):
        with pytest.raises(type(error)):
            make_library(folder, wanted(), build_and_raise(error), Told())
    assert seen == [[], ["a.o"], []]


def test_of_threads_one_builds_and_who_waits_hears_of_a_failure(folder):
    """Else each of many processes would build in vain, one after the other."""
    waiting = threading.Barrier(4)
    builds, errors, said = [], [], []

    class Meets(Told):
        def say(self, text):
            super().say(text)
            waiting.wait(20)

    def build(source, output):
        builds.append(output)
        waiting.wait(20)
        raise TorchwheelError("does not compile")

    def run():
        told = Meets()
        try:
            make_library(folder, wanted(), build, told)
        except TorchwheelError as error:
            errors.append(str(error))
        said.extend(told.said)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(builds) == 1
    assert errors == ["does not compile"] * 4
    assert sorted(said) == ["ext.scale: another process builds it: waiting for it"] * 3 + [
        "ext.scale: building it"
    ]
    assert make_library(folder, wanted(), Builds(), Told()).is_file(), "who comes later tries again"


def fail(source, output):
    raise TorchwheelError("does not compile")


def made_after(folder, other, error):
    """A library that waits for another thread's build, which ends by an error meanwhile."""
    started, ending = threading.Event(), threading.Event()

    def build(source, output):
        started.set()
        ending.wait(20)
        raise error

    class Waits(Told):
        def say(self, text):
            ending.set()

    def run():
        with pytest.raises(type(error)):
            make_library(folder, wanted(other), build, Told())

    thread = threading.Thread(target=run)
    thread.start()
    assert started.wait(20)
    library = make_library(folder, wanted("two"), Builds(), Waits())
    thread.join()
    return library


def test_a_build_of_another_content_that_failed_is_no_reason(folder):
    assert made_after(folder, "one", TorchwheelError("does not compile")).is_file()


def test_an_earlier_failure_is_no_reason_for_who_waits_for_a_build_that_was_stopped(folder):
    with pytest.raises(TorchwheelError):
        make_library(folder, wanted("two"), fail, Told())
    assert made_after(folder, "two", KeyboardInterrupt()).is_file()


def test_what_killed_builds_left_makes_room_before_the_next_one(folder, library):
    left = library.parents[1] / ".x.abc.temporary"
    left.mkdir()

    def build(source, output):
        assert not left.exists()
        return Builds()(source, output)

    make_library(folder, wanted("two"), build, Told())


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_one_line_and_what_was_there_stays(folder, library, number):
    def full(source, output):
        raise OSError(number, os.strerror(number), "x")

    def full_for_the_compiler(source, output):
        raise program_error(f"building CUDA a.cu failed: x.o: {os.strerror(number)}")

    before = library.read_bytes()
    for build in (full, full_for_the_compiler):
        with pytest.raises(TorchwheelError, match=rf"^no space left on the disk of {folder} or"):
            make_library(folder, wanted("two"), build, Told())
    assert library.read_bytes() == before
    assert find_library(folder, wanted("two").key).library is None


def test_any_other_error_of_the_system_is_one_line(folder):
    def build(source, output):
        return output / "none.so"

    with pytest.raises(
        TorchwheelError,
        match=r"^\S+none\.so: expected a file or folder, found none; check the path$",
    ):
        make_library(folder, wanted(), build, Told())


def test_what_was_used_least_recently_goes_but_never_what_was_just_made(folder, monkeypatch):
    libraries = []
    for text in ("one", "two", "three"):
        libraries.append(make_library(folder, wanted(text, name=text), Builds(), Told()))
    for library, age in zip(libraries, (2, 1, 3), strict=True):
        for path in library.parents[1].iterdir():
            os.utime(path, (age, age))
    # A library of 1000 bytes, its entry of some 300, its source and its object: 2.4 KB a name.
    monkeypatch.setenv("TORCHWHEEL_CACHE_SIZE", "5.5K")
    make_library(folder, wanted("four", name="four"), Builds(), Told())
    assert [library.exists() for library in libraries] == [False, False, True]
    monkeypatch.setenv("TORCHWHEEL_CACHE_SIZE", "0")
    last = make_library(folder, wanted("five", name="five"), Builds(), Told())
    assert sorted(folder.glob("*/*")) == [last.parent]
    assert last.is_file()


def test_a_cap_that_is_none_is_said_before_anything_is_built(folder, monkeypatch):
    monkeypatch.setenv("TORCHWHEEL_CACHE_SIZE", "a lot")
    builds = Builds()
    with pytest.raises(UsageError, match=r'^TORCHWHEEL_CACHE_SIZE="a lot": a size expected'):
        make_library(folder, wanted(), builds, Told())
    assert builds.count == 0


def test_pruning_that_fails_takes_nothing_from_what_was_made(folder, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(making, "prune_cache", refuse)
    assert make_library(folder, wanted(), Builds(), Told()).is_file()


def test_a_cache_that_cannot_be_is_said_and_the_build_is_this_processs_own(tmp_path, temporary):
    (tmp_path / "file").touch()
    folder = tmp_path / "file" / "jit"
    builds, told = Builds(), Told()
    library = make_library(folder, wanted(), builds, told)
    assert library.read_bytes() == library_of("one")
    (private,) = temporary.iterdir()
    assert library.is_relative_to(private)
    assert stat.S_IMODE(private.stat().st_mode) == 0o700
    assert told.said == [
        f"{folder}: Not a directory",
        f"{folder}: cannot be written (Not a directory): ext.scale is built for this process alone "
        "and again next time; set TORCHWHEEL_CACHE to a folder that can be written",
        "ext.scale: building it",
    ]
    assert make_library(folder, wanted(), builds, told) == library
    assert builds.count == 1, "this process has it already"


def test_a_file_system_without_locks_is_as_good_as_one_that_cannot_be_written(
    folder, temporary, monkeypatch
):
    real, refused = fcntl.flock, []

    def refuse_once(file, how):
        if not refused:
            refused.append(file)
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
        real(file, how)

    told = Told()
    monkeypatch.setattr(fcntl, "flock", refuse_once)
    assert make_library(folder, wanted(), Builds(), told).is_relative_to(temporary)
    assert told.said[0].startswith(
        f"{folder}: cannot be written (No locks available): ext.scale is"
    )


def test_a_private_folder_of_a_killed_process_goes_with_the_next_one(tmp_path):
    code = """
import os, signal, sys
from torchwheel_runtime.files import private_folder
(private_folder() / "built.so").touch()
if sys.argv[1] == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
"""
    for how in ("killed", "ended"):
        run_python(code, how, env={**os.environ, "TMPDIR": str(tmp_path)})
        assert len(everything(tmp_path)) == (2 if how == "killed" else 0)


def test_a_private_folder_that_is_gone_is_made_again(temporary):
    private_folder().rmdir()
    assert private_folder().is_dir()


def test_a_private_folder_goes_with_its_process_and_not_with_its_children(tmp_path):
    code = """
import os, sys
from torchwheel_runtime.files import private_folder
folder = private_folder()
assert private_folder() == folder
child = os.fork()
if not child:
    assert private_folder() != folder
    sys.exit()
os.waitpid(child, 0)
print(folder, folder.is_dir())
"""
    done = run_python(code, env={**os.environ, "TMPDIR": str(tmp_path)})
    assert done.stdout.split()[1:] == ["True"]
    assert everything(tmp_path) == []
