"""Files and folders are replaced in one step, and one process holds a lock."""

import contextlib
import os
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from programmaker import run_python
from torchwheel_runtime import files
from torchwheel_runtime.lock import LockBusyError, fail_if_busy, hold_lock
from torchwheel_runtime.os_errors import explain

# Files and folders are replaced in one step, whenever the writer is killed and whoever sweeps.


KILLED = 9
# The child ends at its Nth call that changes names. Audit hooks run before the call.
CHANGES = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "ctypes.call_function"}
REPLACE = """
import os, sys
from pathlib import Path
from torchwheel_runtime import files

target, number, exchange = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "exchange"
if not exchange:
    files._exchange = lambda one, other: False
left = number

def count(event, arguments):
    global left
    if event in {changes}:
        left -= 1
        if left < 0:
            os._exit(9)

sys.addaudithook(count)
with files.make_folder_atomically(target) as folder:
    (folder / "a").write_text("new")
    (folder / "b").write_text("new")
"""


def killed_at(target: Path, number: int, way: str) -> int:
    """Replace `target` in a child that ends before its change `number`; its exit status."""
    code = REPLACE.replace("{changes}", repr(CHANGES))
    return run_python(code, target, number, way).returncode


def content(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


OLD, NEW = {"a": "old"}, {"a": "new", "b": "new"}


def test_a_kill_between_two_renames_leaves_the_old_folder_or_the_new(tmp_path):
    target, seen = tmp_path / "index", []
    for number in range(20):
        with files.make_folder_atomically(target) as folder:
            (folder / "a").write_text("old")
        status = killed_at(target, number, "exchange")
        seen.append(content(target))
        if status == 0:
            break
        assert status == KILLED
    assert all(state in (OLD, NEW) for state in seen), seen
    assert OLD in seen[:-1]
    assert NEW in seen[:-1], "no kill fell between the exchange and the end"
    files.remove_leftovers(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["index"]


@pytest.mark.parametrize("following", ["writer", "sweep"])
def test_where_names_cannot_be_exchanged_the_next_run_restores_the_folder(tmp_path, following):
    target, missing = tmp_path / "index", 0
    for number in range(20):
        with files.make_folder_atomically(target) as folder:
            (folder / "a").write_text("old")
        status = killed_at(target, number, "two steps")
        missing += not target.exists()
        if following == "sweep":
            files.remove_leftovers(tmp_path)
        else:
            with pytest.raises(ZeroDivisionError), files.make_folder_atomically(target):
                raise ZeroDivisionError
        assert content(target) in (OLD, NEW)
        assert [path.name for path in tmp_path.iterdir()] == ["index"]
        if status == 0:
            break
    assert missing == 1, "the kill between the two renames"


def test_what_a_living_writer_holds_is_not_swept(tmp_path):
    with (
        files.make_folder_atomically(tmp_path / "a") as one,
        files.write_atomically(tmp_path / "b") as other,
    ):
        (one / "x").write_text("1")
        other.write_text("2")
        files.remove_leftovers(tmp_path)
        assert (one / "x").read_text() == "1"
        with files.make_folder_atomically(tmp_path / "a") as third:
            (third / "x").write_text("3")
    assert (tmp_path / "a" / "x").read_text() == "1"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_the_next_writer_removes_what_a_killed_one_left(tmp_path):
    target = tmp_path / "release"
    code = (
        "import os, sys; from pathlib import Path; from torchwheel_runtime import files\n"
        "with files.make_folder_atomically(Path(sys.argv[1])) as folder:\n"
        "    (folder / 'x').touch()\n"
        "    os._exit(9)\n"
    )
    for _ in range(3):
        run_python(code, target)
    assert len(list(tmp_path.iterdir())) == 1, "each writer removes what the last one left"
    with files.make_folder_atomically(target) as folder:
        (folder / "a").write_text("new")
    assert [path.name for path in tmp_path.iterdir()] == ["release"]


OLD_ONES = {
    "file": lambda target: target.write_text("x"),
    "link": lambda target: target.symlink_to("elsewhere"),
    "empty": Path.mkdir,
    "full": lambda target: (target / "x").mkdir(parents=True),
}


@pytest.mark.parametrize("make", OLD_ONES.values(), ids=OLD_ONES)
def test_a_folder_replaces_whatever_has_its_name(tmp_path, make):
    target = tmp_path / "target"
    make(target)
    with files.make_folder_atomically(target) as folder:
        (folder / "a").write_text("new")
    assert content(target) == {"a": "new"}
    assert [path.name for path in tmp_path.iterdir()] == ["target"]


def test_a_file_does_not_replace_a_folder(tmp_path):
    (tmp_path / "target").mkdir()
    with pytest.raises(IsADirectoryError):
        files.write_text(tmp_path / "target", "x")
    assert [path.name for path in tmp_path.iterdir()] == ["target"]


@pytest.fixture
def umask():
    """Sets the umask of this process for a test."""
    before = os.umask(0o022)
    yield os.umask
    os.umask(before)


@pytest.mark.parametrize(
    ("mask", "file", "folder"),
    [(0o077, 0o600, 0o700), (0o027, 0o640, 0o750), (0o022, 0o644, 0o755), (0o002, 0o644, 0o755)],
)
def test_the_umask_decides_who_may_read(tmp_path, umask, mask, file, folder):
    umask(mask)
    files.write_text(tmp_path / "file", "x")
    with files.make_folder_atomically(tmp_path / "folder"):
        pass
    program = tmp_path / "program"
    program.touch()
    files.make_executable(program)
    found = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("file", "folder")]
    assert found == [file, folder]
    assert stat.S_IMODE(program.stat().st_mode) == (0o666 & ~mask) | (0o111 & ~mask)


def test_temporary_files_of_a_killed_run_are_swept_and_no_others(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    code = (
        "import os, sys, tempfile; from torchwheel_runtime import files\n"
        "tempfile.tempdir = sys.argv[1]\n"
        "with files.own_temporary_files():\n"
        "    open(os.path.join(tempfile.mkdtemp(), 'x'), 'w').close()\n"
        "    os._exit(9)\n"
    )
    run_python(code, tmp_path)
    (left,) = tmp_path.iterdir()
    assert list(left.rglob("x"))
    (tmp_path / "torchwheel-of-somebody").mkdir()
    with files.own_temporary_files():
        own = Path(tempfile.gettempdir())
        assert own.parent == tmp_path
        assert stat.S_IMODE(own.stat().st_mode) == 0o700
        assert not left.exists()
        with files.own_temporary_files():
            assert own.exists()
    assert tempfile.gettempdir() == str(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["torchwheel-of-somebody"]


def test_without_a_folder_for_temporary_files_a_command_still_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    with files.own_temporary_files():
        assert tempfile.tempdir == str(tmp_path / "missing")


def test_no_trial_file_is_written_that_a_kill_would_leave(tmp_path):
    code = (
        "import os, sys\n"
        "from torchwheel_runtime import files\n"
        "made = []\n"
        "def note(event, arguments):\n"
        "    if event == 'open' and arguments[2] & os.O_CREAT:\n"
        "        made.append(arguments)\n"
        "sys.addaudithook(note)\n"
        "with files.own_temporary_files():\n"
        "    print(made, files.temporary_variables()['TMPDIR'])\n"
    )
    done = run_python(code, env={**os.environ, "TMPDIR": str(tmp_path)})
    assert done.stdout.startswith(f"[] {tmp_path}/torchwheel-"), done.stdout + done.stderr


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no /proc here")
@pytest.mark.parametrize("write", [files.write_atomically, files.make_folder_atomically])
def test_a_folder_in_which_nothing_can_be_made_is_an_error_and_no_loop(write, monkeypatch):
    # To root every folder looks writable; to others this one does.
    monkeypatch.setattr(files, "remove_leftovers", lambda *_: None)
    with pytest.raises(OSError, match="/proc") as caught, write(Path("/proc/x")):
        pass
    if os.geteuid() == 0:
        assert explain(caught.value).startswith("/proc: expected a place that can be written")
    monkeypatch.setattr(tempfile, "tempdir", "/proc")
    with files.own_temporary_files():
        assert tempfile.tempdir == "/proc"


# One holds a lock, others wait, and no file that is gone is a lock.


HOLD = """
import sys
from pathlib import Path
from torchwheel_runtime.lock import hold_lock
with hold_lock(Path(sys.argv[1]), lambda: None):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def lock(tmp_path):
    return tmp_path / "lock"


def test_another_process_has_it_until_that_ends_in_whatever_way(lock):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(LockBusyError), hold_lock(lock, fail_if_busy):
            pass
        said = []
        with hold_lock(lock, lambda: (said.append("waiting"), holder.kill())):
            assert said == ["waiting"]
    finally:
        holder.kill()
        holder.communicate()


def test_who_waited_for_a_lock_that_was_removed_waits_for_the_new_one(lock):
    waits = threading.Semaphore(0)
    order = []

    def wait():
        with hold_lock(lock, waits.release):
            order.append("second")

    thread = threading.Thread(target=wait)
    with contextlib.ExitStack() as old:
        old.enter_context(hold_lock(lock, fail_if_busy))
        thread.start()
        assert waits.acquire(timeout=20)
        lock.unlink()
        # Whoever comes now makes a new file, and has that.
        with hold_lock(lock, fail_if_busy):
            old.close()
            assert waits.acquire(timeout=20), "it does not wait again"
            order.append("first")
    thread.join()
    assert order == ["first", "second"]


def test_what_the_holder_wrote_the_next_one_reads(lock):
    with hold_lock(lock, fail_if_busy) as file:
        file.write(b"word")
    with hold_lock(lock, fail_if_busy) as file:
        assert file.read() == b"word"


def test_a_link_is_no_lock(lock, tmp_path):
    (tmp_path / "target").touch()
    lock.symlink_to(tmp_path / "target")
    with pytest.raises(OSError, match="symbolic links"), hold_lock(lock, fail_if_busy):
        pass
