"""Lists and prunes the cache: corrupt and old libraries, and the least recently used."""

import contextlib
import dataclasses
import os
import re
from collections.abc import Iterator
from pathlib import Path

from torchwheel_runtime.files import discard, remove_leftovers
from torchwheel_runtime.jit.content import WORK_PREFIX
from torchwheel_runtime.jit.folder import LOCK_SUFFIX, lock_of
from torchwheel_runtime.jit.key import CacheKey
from torchwheel_runtime.jit.lookup import CorruptError, open_verified
from torchwheel_runtime.lock import LockBusyError, fail_if_busy, hold_lock

_NAME = re.compile(rf"[0-9a-f]{{32}}|{WORK_PREFIX}.*", re.DOTALL)


@dataclasses.dataclass(frozen=True)
class CacheItem:
    """A library with its entry, or a work folder.

    Attributes:
        path: its folder.
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
    """Remove an item. Returns False if a build uses its target.

    A process that has the library loaded is not affected.
    """
    try:
        with hold_lock(lock_of(folder, item.path.parent.name), fail_if_busy):
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
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += Path(path, name).lstat().st_size
    return total


def prune_cache(
    folder: Path,
    cap: int,
    *,
    before: float = 0,
    keep: Path | None = None,
    corrupt: bool = False,
) -> tuple[list[CacheItem], list[CacheItem]]:
    """Remove libraries and work folders, except those that a build uses.

    Args:
        folder: the cache.
        cap: the bytes that may stay; the least recently used items are removed first.
        before: items last used before this time are removed, in seconds since 1970.
        keep: the folder of a library that stays in any case.
        corrupt: verify every library and remove corrupt ones.

    Returns:
        The removed items and the remaining ones.
    """
    cached = list_items(folder)
    total, removed = sum(item.size for item in cached), []
    for item in cached:
        surplus = total > cap or item.used < before or (corrupt and not is_intact(folder, item))
        if surplus and item.path != keep and remove_item(folder, item):
            total -= item.size
            removed.append(item)
    tidy(folder)
    return removed, [item for item in cached if item not in removed]


def is_intact(folder: Path, item: CacheItem) -> bool:
    """Whether a library is as it was written; a work folder always is."""
    if item.is_library:
        try:
            open_verified(folder, item.key)
        except (CorruptError, OSError):
            return False
    return True
