"""torchwheel's cache: its folder, its size and its faults."""

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path

from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.jit.key import CacheKey
from torchwheel_runtime.jit.lookup import CorruptError, open_verified
from torchwheel_runtime.jit.store import folder_size, list_items
from torchwheel_runtime.os_errors import explain
from torchwheel_runtime.ownership import UntrustedError, trusted_path
from torchwheel_runtime.toolkit.cache import cache_path


@dataclasses.dataclass(frozen=True)
class CorruptLibrary:
    """A library of the cache that is not as it was written.

    Attributes:
        key: its key in the cache.
        file: the name of the file that is wrong.
        why: what is wrong with it.
    """

    key: CacheKey
    file: str
    why: str

    def __str__(self) -> str:
        return f"{self.key.target}/{self.file}: {self.why}"


@dataclasses.dataclass(frozen=True)
class CacheState:
    """The state of torchwheel's cache.

    Attributes:
        folder: its folder, which need not exist yet.
        sizes: bytes of each part, e.g. "toolkits" and "jit", the largest first.
        problem: why the cache cannot be written; None if it can.
        corrupt: libraries built just in time that are not as they were written.
    """

    folder: Path
    sizes: Mapping[str, int] = dataclasses.field(default_factory=dict)
    problem: str | None = None
    corrupt: tuple[CorruptLibrary, ...] = ()


def examine_cache() -> CacheState:
    """Examine the cache without any change to it."""
    try:
        folder = cache_path()
    except TorchwheelError as error:  # a user without a home folder
        return CacheState(Path(os.devnull), problem=str(error))
    return CacheState(
        folder, _part_sizes(folder), _write_problem(folder), _corrupt_libraries(folder / "jit")
    )


def _part_sizes(folder: Path) -> dict[str, int]:
    try:
        parts = [path for path in folder.iterdir() if path.is_dir()]
    except OSError:
        return {}
    sizes = ((part.name, folder_size(part)) for part in parts)
    return dict(sorted(((n, s) for n, s in sizes if s), key=lambda part: (-part[1], part[0])))


def _write_problem(folder: Path) -> str | None:
    """Why the folder cannot be written or made, judged by its nearest existing parent."""
    try:
        existing = next(path for path in (folder, *folder.parents) if _is_there(path))
    except OSError as error:
        return explain(error)
    if not existing.is_dir():
        return f"{existing} is not a folder"
    if not os.access(existing, os.W_OK | os.X_OK):
        return f"{existing} cannot be written"
    try:
        trusted_path(existing)
    except UntrustedError as error:
        return str(error)
    return None


def _is_there(path: Path) -> bool:
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _corrupt_libraries(folder: Path) -> tuple[CorruptLibrary, ...]:
    corrupt = []
    try:
        libraries = [item for item in list_items(folder) if item.is_library]
    except OSError:
        return ()
    for item in libraries:
        try:
            open_verified(folder, item.key)
        except CorruptError as error:
            corrupt.append(CorruptLibrary(item.key, error.path.name, error.why))
        except OSError:
            continue
    return tuple(corrupt)
