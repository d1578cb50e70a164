"""Removes what is old, what is corrupt, and what is too much, the least recently used first."""

from pathlib import Path

from torchwheel.jit.store import Item, items, remove, tidy
from torchwheel.jit.verified import CorruptError, verified


def prune(
    folder: Path,
    cap: int,
    *,
    before: float = 0,
    keep: Path | None = None,
    corrupt: bool = False,
) -> tuple[list[Item], list[Item]]:
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
    there = items(folder)
    total, gone = sum(item.size for item in there), []
    for item in there:
        goes = total > cap or item.used < before or (corrupt and not is_whole(folder, item))
        if goes and item.path != keep and remove(folder, item):
            total -= item.size
            gone.append(item)
    tidy(folder)
    return gone, [item for item in there if item not in gone]


def is_whole(folder: Path, item: Item) -> bool:
    """Whether an item is as it was written; of work folders nothing is expected."""
    if item.is_library:
        try:
            verified(folder, item.key)
        except (CorruptError, OSError):
            return False
    return True
