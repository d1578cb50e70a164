"""Looks a library up; what is corrupt counts as absent, and is removed.

Standard library only: the import of an extension does this.
"""

import contextlib
import dataclasses
import os
from pathlib import Path

from torchwheel.errors import TorchwheelError
from torchwheel.files import discard
from torchwheel.jit.folder import lock_of, secure
from torchwheel.jit.key import Key
from torchwheel.jit.verified import CorruptError, verified
from torchwheel.lock import BusyError, alone, give_way


@dataclasses.dataclass(frozen=True)
class Found:
    """What a lookup came to.

    Attributes:
        library: the library, whole and of this user.
        problem: one line if there was something, and it could not be used.
    """

    library: Path | None = None
    problem: str | None = None


def find(folder: Path, key: Key) -> Found:
    """The library of `key` in the cache `folder`, if it is there and as it was written.

    What is there and is not is removed where that can be done; then it is as good as absent.
    """
    try:
        secure(folder)
        path, entry = verified(folder, key)
    except FileNotFoundError:
        return Found()
    except TorchwheelError as error:
        return Found(problem=str(error))
    except OSError as error:
        return Found(problem=f"{folder}: {error.strerror}")
    except CorruptError as error:
        gone = "removed" if _removed(folder, key) else "it could not be removed"
        return Found(problem=f"{error}; {gone}")
    with contextlib.suppress(OSError):
        os.utime(path)  # its last use
    return Found(path / entry.file)


def whole_or_gone(folder: Path, key: Key) -> Path | None:
    """The library of `key`, if it is there; what is corrupt is removed. Hold the target's lock."""
    try:
        path, entry = verified(folder, key)
    except FileNotFoundError:
        return None
    except CorruptError as error:
        # The library's folder, or that of its target where it is that one.
        parts = error.path.relative_to(folder).parts[:2]
        if parts:
            discard(folder.joinpath(*parts))
        return None
    return path / entry.file


def _removed(folder: Path, key: Key) -> bool:
    """Remove what is corrupt, unless another process has the lock and is about to replace it."""
    try:
        with alone(lock_of(folder, key.target), give_way):
            whole_or_gone(folder, key)
    except (OSError, BusyError):
        return False
    return True
