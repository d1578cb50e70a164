"""The folder of libraries that are built just in time, and its locks."""

import fcntl
import tempfile
from pathlib import Path

from torchwheel_runtime.ownership import trusted_path
from torchwheel_runtime.toolkit.cache import cache_path

LOCK_SUFFIX = ".lock"


def jit_folder() -> Path:
    """The folder of libraries that are built just in time. It is not created here."""
    return cache_path() / "jit"


def lock_of(folder: Path, target: str) -> Path:
    """The lock file of `target`: of its libraries and its work folders."""
    return folder / f"{target}{LOCK_SUFFIX}"


def prepare_for_writing(folder: Path) -> None:
    """Create the folder if needed, and check that it takes files and locks.

    Raises:
        UntrustedError: others can change it.
        OSError: it cannot be created or written.
    """
    folder = trusted_path(folder, create=True)
    with tempfile.TemporaryFile(dir=folder) as file:
        # Some network file systems have no locks.
        fcntl.flock(file, fcntl.LOCK_EX)
