"""The cache's folder, which only this user may access."""

import atexit
import fcntl
import functools
import os
import shutil
import stat
import tempfile
from pathlib import Path

from torchwheel.errors import TorchwheelError
from torchwheel.toolkit.cache import cache_path

_ELSEWHERE = "set TORCHWHEEL_CACHE to a folder of your own"
LOCK_SUFFIX = ".lock"
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def jit_folder() -> Path:
    """The folder of libraries that are built just in time. It is not created here."""
    return cache_path() / "jit"


def lock_of(folder: Path, target: str) -> Path:
    """The lock file of `target`: of its libraries and its work folders."""
    return folder / f"{target}{LOCK_SUFFIX}"


def secure_folder(folder: Path) -> None:
    """Take other users' access to an existing folder away.

    Raises:
        FileNotFoundError: the folder does not exist.
        TorchwheelError: it belongs to another user, is a link, or its mode cannot be changed.
    """
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise TorchwheelError(f"{folder}: a folder expected, not a link or a file; {_ELSEWHERE}")
    if found.st_uid != os.geteuid():
        raise TorchwheelError(
            f"{folder}: belongs to user {found.st_uid}, you are {os.geteuid()}; {_ELSEWHERE}"
        )
    if stat.S_IMODE(found.st_mode) & 0o077:
        try:
            folder.chmod(0o700)
        except OSError as error:
            # If the mode cannot be changed, others may read the folder but not write to it.
            if found.st_mode & OTHERS_WRITE:
                raise TorchwheelError(
                    f"{folder}: others may write to it, and that cannot be changed "
                    f"({error.strerror}); {_ELSEWHERE}"
                ) from error


def prepare_for_writing(folder: Path) -> None:
    """Create `folder` if needed, private to the user, and check that it takes files and locks.

    Raises:
        TorchwheelError: the folder cannot be trusted.
        OSError: it cannot be created or written.
    """
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder.mkdir(exist_ok=True, mode=0o700)
    secure_folder(folder)
    with tempfile.TemporaryFile(dir=folder) as file:
        # Some network file systems have no locks.
        fcntl.flock(file, fcntl.LOCK_EX)


def private_folder() -> Path:
    """A temporary folder of this process, removed at its end."""
    return _private_folder(os.getpid())


@functools.cache
def _private_folder(process: int) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="torchwheel-jit-"))

    def remove() -> None:
        # A forked child runs this too, but the folder belongs to its parent.
        if os.getpid() == process:
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return folder
