"""A lock between processes, and between threads: one holds it, others wait."""

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO


class LockBusyError(Exception):
    """Another holds the lock."""


def give_way() -> None:
    """For `alone`: do not wait, leave with a BusyError."""
    raise LockBusyError


@contextlib.contextmanager
def hold_lock(lock: Path, busy: Callable[[], None]) -> Iterator[IO[bytes]]:
    """Hold the file `lock` for the block; yields it, open for reading and writing.

    The lock goes with the process, however that ends. Whoever holds it may unlink the file.

    On NFS the kernel asks the server, so it holds between machines; where a mount keeps locks to
    one machine (nolock, local_lock, Lustre's localflock), it holds between that one's processes.

    Args:
        lock: the file, in a folder that is there; it is made if need be.
        busy: called if another holds the lock, before it is waited for; it may raise instead.
    """
    while True:
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "r+b") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                busy()
                fcntl.flock(file, fcntl.LOCK_EX)
            # Who waited for a file that was unlinked meanwhile holds nothing.
            if _is_at(lock, file):
                yield file
                return


def _is_at(path: Path, file: IO[bytes]) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False
