"""The sources a library is built from, and the folder it is built in."""

import contextlib
import dataclasses
import platform
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from torchwheel.errors import TorchwheelError, UsageError
from torchwheel.files import discard


@dataclasses.dataclass(frozen=True)
class SourceFiles:
    """Sources and headers.

    Attributes:
        folder: where they were read; it has no part in a key.
        files: the bytes of each, by its path relative to the folder.
    """

    folder: Path
    files: Mapping[str, bytes]


def read_sources(folder: Path, globs: Iterable[str]) -> SourceFiles:
    """The files below `folder` that the globs name, e.g. "**/*.h".

    Raises:
        UsageError: a glob names no file.
        TorchwheelError: a file cannot be read.
    """
    paths: set[Path] = set()
    for pattern in globs:
        found = {path for path in folder.glob(pattern) if path.is_file()}
        if not found:
            raise UsageError(f"{folder}: no file matches {pattern!r}")
        paths |= found
    try:
        return SourceFiles(
            folder, {str(p.relative_to(folder)): p.read_bytes() for p in sorted(paths)}
        )
    except OSError as error:
        raise TorchwheelError(f"{error.filename}: {error.strerror}") from error


def write_sources(content: SourceFiles, folder: Path) -> None:
    """Have `folder` hold these files and no other.

    A file that is there already keeps its time; any other gets the time of now, which is what a
    build goes by. The times of the files that were read may lie: an older version that comes back
    (pip, git, rsync) can be older than the objects of the newer one.
    """
    wanted = {folder / name: data for name, data in content.files.items()}
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir() and not path.is_symlink():
            with contextlib.suppress(OSError):  # not empty
                path.rmdir()
        elif path not in wanted:
            path.unlink()
    for path, data in wanted.items():
        if not path.is_file() or path.read_bytes() != data:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)


WORK_PREFIX = "work-"
"""Begins the name of a work folder, beside the libraries that were built in it."""


@dataclasses.dataclass(frozen=True)
class WorkFolder:
    """What a build is given.

    Attributes:
        source: the files to build, and no other.
        folder: for what the build makes; it has what the last build there left.
    """

    source: Path
    folder: Path


@contextlib.contextmanager
def work_folder(target: Path, content: SourceFiles) -> Iterator[WorkFolder]:
    """Yield the work folder of this machine below `target`; hold the target's lock.

    A build that did not end by itself may have left compilers behind that still write. Its folder
    is moved away from under them, and the next build begins anew.
    """
    # One for each machine: two that share a home may not share locks.
    own = target / f"{WORK_PREFIX}{re.sub(r'[^A-Za-z0-9.-]', '_', platform.node())[:80]}"
    running = own / "running"
    if running.exists():
        discard(own)
    own.mkdir(exist_ok=True, mode=0o700)
    running.touch()
    work = WorkFolder(own / "source", own / "build")
    work.folder.mkdir(exist_ok=True)
    write_sources(content, work.source)
    try:
        yield work
    except TorchwheelError as error:
        running.unlink()
        # People look for a mistake in their own file.
        raise type(error)(str(error).replace(str(work.source), str(content.folder))) from error
    running.unlink()
