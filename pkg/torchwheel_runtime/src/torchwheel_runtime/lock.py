"""A file lock between processes and between threads: one holds it, the others wait.

Standard library only: the import of an extension asks for the cache, which is locked with this.
"""

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from torchwheel_runtime.ownership import is_open_at


class LockBusyError(Exception):
    """Another process or thread holds the lock."""


def fail_if_busy() -> None:
    """For `hold_lock`: do not wait, raise LockBusyError."""
    raise LockBusyError


def say_waiting(say: Callable[[str], None], why: str) -> Callable[[], None]:
    """For `hold_lock`: say why this process waits, then wait."""
    return lambda: say(f"{why}: waiting for it")


@contextlib.contextmanager
def hold_lock(lock: Path, busy: Callable[[], None]) -> Iterator[IO[bytes]]:
    """Hold the file `lock` for the block; yields it, open for reading and writing.

    The lock ends with its process, however that ends. The holder may unlink the file.

    On NFS the kernel asks the server, so the lock holds between machines. Where a mount keeps locks
    to one machine (nolock, local_lock, Lustre's localflock), it holds between that one's processes.

    Args:
        lock: the file, in a folder that exists; the file is created if it is missing.
        busy: called before a wait for another holder; it may raise instead.
    """
    while True:
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "r+b") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                busy()
                fcntl.flock(file, fcntl.LOCK_EX)
            # A file that was unlinked during the wait locks nothing: take the new file.
            if is_open_at(lock, file.fileno()):
                yield file
                return
