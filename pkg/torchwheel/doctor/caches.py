"""The caches of this user: where they are, how large they have grown, whether they work."""

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path

from torchwheel.jit.key import CacheKey
from torchwheel.jit.lookup import CorruptError, open_verified
from torchwheel.jit.store import list_items
from torchwheel.toolkit.cache import cache_path


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
    """torchwheel's cache.

    Attributes:
        folder: where it is; it need not be there yet.
        sizes: bytes of each part that is there, e.g. "toolkits", "jit", the largest first.
        problem: why nothing can be written to it.
        corrupt: libraries built just in time that are not as they were written.
    """

    folder: Path
    sizes: Mapping[str, int] = dataclasses.field(default_factory=dict)
    problem: str | None = None
    corrupt: tuple[CorruptLibrary, ...] = ()


def examine_cache() -> CacheState:
    """Look at the cache; nothing is made, removed or changed."""
    folder = cache_path()
    return CacheState(
        folder, _part_sizes(folder), _write_problem(folder), _corrupt_libraries(folder / "jit")
    )


def _part_sizes(folder: Path) -> dict[str, int]:
    try:
        parts = [path for path in folder.iterdir() if path.is_dir()]
    except OSError:
        return {}
    sizes = ((part.name, _size(part)) for part in parts)
    return dict(sorted(((n, s) for n, s in sizes if s), key=lambda part: (-part[1], part[0])))


def _size(folder: Path) -> int:
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                total += Path(path, name).lstat().st_size
            # It went meanwhile.
            except OSError:
                continue
    return total


def _write_problem(folder: Path) -> str | None:
    """Whether it could be written, or made, judged by the folder that is there."""
    there = next(path for path in (folder, *folder.parents) if os.path.lexists(path))
    if not there.is_dir():
        return f"{there} is not a folder"
    if not os.access(there, os.W_OK | os.X_OK):
        return f"{there} cannot be written"
    return None


def _corrupt_libraries(folder: Path) -> tuple[CorruptLibrary, ...]:
    found = []
    try:
        libraries = [item for item in list_items(folder) if item.is_library]
    except OSError:
        return ()
    for item in libraries:
        try:
            open_verified(folder, item.key)
        except CorruptError as error:
            found.append(CorruptLibrary(item.key, error.path.name, error.why))
        except OSError:
            continue
    return tuple(found)
