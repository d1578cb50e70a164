"""What the cache holds, and how it is pruned: old, corrupt, least recently used first."""

import contextlib
import dataclasses
import os
import re
from collections.abc import Iterator
from pathlib import Path

from torchwheel.files import discard, remove_leftovers
from torchwheel.jit.content import WORK_PREFIX
from torchwheel.jit.folder import LOCK_SUFFIX, lock_of
from torchwheel.jit.key import CacheKey
from torchwheel.jit.lookup import CorruptError, open_verified
from torchwheel.lock import LockBusyError, fail_if_busy, hold_lock

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
        """Whether it is a library."""
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
    """Remove an item; False while a build has its target. Who has a library loaded keeps it."""
    try:
        with hold_lock(lock_of(folder, item.path.parent.name), fail_if_busy):
            discard(item.path)
    except LockBusyError:
        return False
    return True


def tidy(folder: Path) -> None:
    """Remove what killed processes left, targets that hold nothing, and their locks."""
    remove_leftovers(folder)
    for lock in list(folder.glob(f"*{LOCK_SUFFIX}")):
        with contextlib.suppress(LockBusyError, FileNotFoundError), hold_lock(lock, fail_if_busy):
            target = lock.with_name(lock.name.removesuffix(LOCK_SUFFIX))
            remove_leftovers(target)
            with contextlib.suppress(OSError):  # it holds something
                target.rmdir()
            if not os.path.lexists(target):
                lock.unlink()


def _folders(folder: Path) -> Iterator[Path]:
    """Folders in a folder, but not behind links; none where that is none."""
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as found:
        for one in found:
            if one.is_dir(follow_symlinks=False) and not one.name.startswith("."):
                yield folder / one.name


def folder_size(folder: Path) -> int:
    """Bytes of all files below a folder."""
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
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
    """Remove libraries and work folders; what a build is busy with stays.

    Args:
        folder: the cache.
        cap: the bytes that may stay; the least recently used goes first.
        before: what was last used before this time goes, in seconds since 1970.
        keep: a library that stays in any case.
        corrupt: whether every library is checked and goes if it is corrupt.

    Returns:
        What went and what stayed.
    """
    there = list_items(folder)
    total, gone = sum(item.size for item in there), []
    for item in there:
        goes = total > cap or item.used < before or (corrupt and not is_intact(folder, item))
        if goes and item.path != keep and remove_item(folder, item):
            total -= item.size
            gone.append(item)
    tidy(folder)
    return gone, [item for item in there if item not in gone]


def is_intact(folder: Path, item: CacheItem) -> bool:
    """Whether an item is as it was written; of work folders nothing is expected."""
    if item.is_library:
        try:
            open_verified(folder, item.key)
        except (CorruptError, OSError):
            return False
    return True
