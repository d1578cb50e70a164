"""The files a library is made of: read once, so what is built is what its key says."""

import contextlib
import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path

from torchwheel.errors import TorchwheelError, UsageError


@dataclasses.dataclass(frozen=True)
class Content:
    """Sources and headers.

    Attributes:
        folder: where they were read; it has no part in a key.
        files: the bytes of each, by its path relative to the folder.
    """

    folder: Path
    files: Mapping[str, bytes]


def read_content(folder: Path, globs: Iterable[str]) -> Content:
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
        return Content(folder, {str(p.relative_to(folder)): p.read_bytes() for p in sorted(paths)})
    except OSError as error:
        raise TorchwheelError(f"{error.filename}: {error.strerror}") from error


def lay_out(content: Content, folder: Path) -> None:
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
