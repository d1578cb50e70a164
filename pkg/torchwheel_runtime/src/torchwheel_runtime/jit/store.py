"""Lists and prunes the cache of libraries: corrupt and old ones, and the least recently used."""

import contextlib
import dataclasses
import os
import re
import stat
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.files import discard, remove_leftovers
from torchwheel_runtime.jit.key import CacheKey
from torchwheel_runtime.jit.lookup import LOCK_SUFFIX, CorruptError, lock_of, open_verified
from torchwheel_runtime.lock import LockBusyError, fail_if_busy, hold_lock
from torchwheel_runtime.ownership import trusted_path
from torchwheel_runtime.text import (
    WIDTH,
    detail_lines,
    size_cap,
    size_text,
    table_rows,
)

WORK_PREFIX = "work-"
"""Prefix of the names of work folders, which lie beside the libraries."""
_NAME = re.compile(rf"[0-9a-f]{{32}}|{WORK_PREFIX}.*", re.DOTALL)


@dataclasses.dataclass(frozen=True)
class CacheItem:
    """A library with its entry, or a work folder; or what another cache holds.

    Attributes:
        path: its folder, or its file.
        size: bytes of its files.
        used: when it was last used, in seconds since 1970.
    """

    path: Path
    size: int
    used: float

    @property
    def is_library(self) -> bool:
        """Whether it is a library, not a work folder."""
        return not self.path.name.startswith(WORK_PREFIX)

    @property
    def key(self) -> CacheKey:
        """The key of a library."""
        return CacheKey(self.path.parent.name, self.path.name)


def list_items(folder: Path) -> list[CacheItem]:
    """Everything in the cache `folder`, the least recently used first."""
    found = []
    for target in _folders(folder):
        for path in _folders(target):
            if _NAME.fullmatch(path.name):
                with contextlib.suppress(FileNotFoundError):  # another process removed it
                    found.append(CacheItem(path, folder_size(path), path.lstat().st_mtime))
    return sorted(found, key=lambda item: item.used)


def remove_item(folder: Path, item: CacheItem) -> bool:
    """Remove an item of the cache `folder`. Returns False if a build uses it, or its target.

    A process that has the library loaded is not affected.
    """
    try:
        with hold_lock(lock_of(folder, item.path.relative_to(folder).parts[0]), fail_if_busy):
            discard(item.path)
    except LockBusyError:
        return False
    return True


def tidy(folder: Path) -> None:
    """Remove leftovers of killed processes, empty targets, and their locks."""
    remove_leftovers(folder)
    for lock in list(folder.glob(f"*{LOCK_SUFFIX}")):
        with contextlib.suppress(LockBusyError, FileNotFoundError), hold_lock(lock, fail_if_busy):
            target = lock.with_name(lock.name.removesuffix(LOCK_SUFFIX))
            remove_leftovers(target)
            with contextlib.suppress(OSError):  # it is not empty
                target.rmdir()
            if not os.path.lexists(target):
                lock.unlink()


def _folders(folder: Path) -> Iterator[Path]:
    """The folders in a folder, without links; none if the folder does not exist."""
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False) and not entry.name.startswith("."):
                yield folder / entry.name


def folder_size(folder: Path) -> int:
    """Bytes of all files below a folder; files that vanish do not count."""
    return tree_facts(folder)[0]


def tree_facts(path: Path) -> tuple[int, float]:
    """Bytes of a file, or of all files below a folder, and when the newest of all was changed.

    Links are not followed, and what vanishes does not count.
    """
    size, newest = 0, 0.0
    walk = () if path.is_symlink() else os.walk(path)
    inside = (Path(at, name) for at, *names in walk for name in (*names[0], *names[1]))
    for one in (path, *inside):
        with contextlib.suppress(OSError):
            found = one.lstat()
            size += 0 if stat.S_ISDIR(found.st_mode) else found.st_size
            newest = max(newest, found.st_mtime)
    return size, newest


def prune_cache(
    folder: Path,
    cap: int,
    *,
    keep: Path | None = None,
) -> tuple[list[CacheItem], list[CacheItem]]:
    """Remove libraries and work folders, except those that a build uses.

    Args:
        folder: the cache.
        cap: the bytes that may stay; the least recently used items are removed first.
        keep: the folder of a library that stays in any case.

    Returns:
        The removed items and the remaining ones.
    """
    cached = list_items(folder)
    total, removed = sum(item.size for item in cached), []
    for item in cached:
        if total > cap and item.path != keep and remove_item(folder, item):
            total -= item.size
            removed.append(item)
    tidy(folder)
    return removed, [item for item in cached if item not in removed]


def fault_of(folder: Path, item: CacheItem) -> CorruptError | OSError | None:
    """Why a library cannot be loaded; None if it is as it was written, and for a work folder."""
    if item.is_library:
        try:
            open_verified(folder, item.key)
        except (CorruptError, OSError) as error:
            return error
    return None


_COLUMN = 41


def cache_list(folder: Path) -> str:
    """A table of the libraries in the cache, each verified; the last used first."""
    cached = _cached_items(folder)
    entries = [_cells_and_details(folder, item) for item in reversed(cached) if item.is_library]
    present = [entry for entry in entries if entry]
    cells = [("name", "size", "last used", "state"), *(row for row, _ in present)]
    head, *rows = table_rows(f"<{_COLUMN} >9 <16 <", cells)
    lines = [head, "-" * WIDTH]
    for row, (_, details) in zip(rows, present, strict=True):
        lines += [row, *details]
    lines += ["-" * WIDTH] if len(lines) > 2 else []
    return "\n".join([*lines, f"{_count_text(cached)} (cap {size_text(size_cap())})", str(folder)])


def _cached_items(folder: Path) -> list[CacheItem]:
    try:
        return list_items(trusted_path(folder))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise TorchwheelError(f"{error.filename or folder}: {error.strerror}") from error


def _cells_and_details(
    folder: Path, item: CacheItem
) -> tuple[tuple[str, str, str, str], list[str]] | None:
    """The cells of a library's row and the lines below; None if another process removed it."""
    used = time.strftime("%Y-%m-%d %H:%M", time.localtime(item.used))
    try:
        _, entry = open_verified(folder, item.key)
    except CorruptError as error:
        why = f"{error.path.name}: {error.why}"
        cells = (_fit(item.key.name), size_text(item.size), used, "corrupt")
        return cells, detail_lines("why", why)
    except FileNotFoundError:
        return None
    details = [
        *detail_lines("archs", " ".join(entry.archs)),
        *detail_lines("tools", entry.toolkit),
        *detail_lines("torch", entry.torch),
    ]
    return (_fit(entry.name), size_text(item.size), used, "ok"), details


def _fit(name: str) -> str:
    return name if len(name) <= _COLUMN else f"{name[: _COLUMN - 1]}…"


def _count_text(found: Sequence[CacheItem]) -> str:
    libraries = [item.size for item in found if item.is_library]
    work = [item.size for item in found if not item.is_library]
    return (
        f"{len(libraries)} {'library' if len(libraries) == 1 else 'libraries'}, "
        f"{size_text(sum(libraries))}; "
        f"{len(work)} work folder{'' if len(work) == 1 else 's'}, {size_text(sum(work))}"
    )
