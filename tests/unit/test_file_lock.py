"""One holds a lock, others wait, and no file that is gone is a lock."""

import contextlib
import subprocess
import sys
import threading

import pytest

from torchwheel.lock import LockBusyError, fail_if_busy, hold_lock

HOLD = """
import sys
from pathlib import Path
from torchwheel.lock import hold_lock
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
