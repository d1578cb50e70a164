"""The sources of a library, and the folder that it is built in."""

import contextlib
import dataclasses
import platform
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from torchwheel_runtime.errors import TorchwheelError, UsageError
from torchwheel_runtime.files import discard


@dataclasses.dataclass(frozen=True)
class SourceFiles:
    """Sources and headers.

    Attributes:
        folder: the folder that they were read from; it is not part of a key.
        files: the bytes of each file, by its path relative to the folder.
    """

    folder: Path
    files: Mapping[str, bytes]


def read_sources(folder: Path, globs: Iterable[str]) -> SourceFiles:
    """The files below `folder` that match the globs, e.g. "**/*.h".

    Raises:
        UsageError: a glob matches no file.
        TorchwheelError: a file cannot be read.
    """
    paths: set[Path] = set()
    for pattern in globs:
        matches = {path for path in folder.glob(pattern) if path.is_file()}
        if not matches:
            raise UsageError(f"{folder}: no file matches {pattern!r}")
        paths |= matches
    try:
        return SourceFiles(
            folder, {str(p.relative_to(folder)): p.read_bytes() for p in sorted(paths)}
        )
    except OSError as error:
        raise TorchwheelError(f"{error.filename}: {error.strerror}") from error


def write_sources(content: SourceFiles, folder: Path) -> None:
    """Make `folder` contain these files and no other.

    An equal file keeps its modification time. Any other file gets the current time, so that a build
    sees the change. The times of the originals cannot be used: when pip, git or rsync brings
    an older version back, its files can be older than the objects of the newer version.
    """
    targets = {folder / name: data for name, data in content.files.items()}
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir() and not path.is_symlink():
            with contextlib.suppress(OSError):  # not empty
                path.rmdir()
        elif path not in targets:
            path.unlink()
    for path, data in targets.items():
        if not path.is_file() or path.read_bytes() != data:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)


WORK_PREFIX = "work-"
"""Prefix of the names of work folders, which lie beside the libraries."""


@dataclasses.dataclass(frozen=True)
class WorkFolder:
    """The folders of a build.

    Attributes:
        source: has the sources and nothing else.
        folder: for the build's outputs; it still has those of the last build.
    """

    source: Path
    folder: Path


@contextlib.contextmanager
def work_folder(target: Path, content: SourceFiles) -> Iterator[WorkFolder]:
    """Yield the work folder of this machine below `target`. The caller holds the target's lock.

    A killed build may have left compilers that still write. Its folder is therefore renamed and
    removed, and the next build starts with an empty one.
    """
    # One for each machine: machines that share a home folder may not share locks.
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
        # The message names the user's own file, not its copy.
        raise type(error)(str(error).replace(str(work.source), str(content.folder))) from error
    running.unlink()
