"""Where a library is built: a folder that outlives the build, so that only changes are compiled."""

import contextlib
import dataclasses
import platform
import re
from collections.abc import Iterator
from pathlib import Path

from torchwheel.errors import TorchwheelError
from torchwheel.files import discard
from torchwheel.jit.content import Content, lay_out

PREFIX = "work-"
"""Begins the name of a work folder, beside the libraries that were built in it."""


@dataclasses.dataclass(frozen=True)
class Work:
    """What a build is given.

    Attributes:
        source: the files to build, and no other.
        folder: for what the build makes; it has what the last build there left.
    """

    source: Path
    folder: Path


@contextlib.contextmanager
def at_work(target: Path, content: Content) -> Iterator[Work]:
    """Yield the work folder of this machine below `target`; hold the target's lock.

    A build that did not end by itself may have left compilers behind that still write. Its folder
    is moved away from under them, and the next build begins anew.
    """
    # One for each machine: two that share a home may not share locks.
    own = target / f"{PREFIX}{re.sub(r'[^A-Za-z0-9.-]', '_', platform.node())[:80]}"
    running = own / "running"
    if running.exists():
        discard(own)
    own.mkdir(exist_ok=True, mode=0o700)
    running.touch()
    work = Work(own / "source", own / "build")
    work.folder.mkdir(exist_ok=True)
    lay_out(content, work.source)
    try:
        yield work
    except TorchwheelError as error:
        running.unlink()
        # People look for a mistake in their own file.
        raise type(error)(str(error).replace(str(work.source), str(content.folder))) from error
    running.unlink()
