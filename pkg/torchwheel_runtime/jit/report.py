"""The output of `torchwheel cache`, 80 columns wide."""

import math
import time
from collections.abc import Sequence
from pathlib import Path

from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.jit.lookup import CorruptError, open_verified
from torchwheel_runtime.jit.store import CacheItem, list_items, prune_cache
from torchwheel_runtime.ownership import trusted_path
from torchwheel_runtime.text import (
    WIDTH,
    detail_lines,
    parse_age,
    parse_size,
    size_cap,
    size_text,
    table_rows,
)

_NAME = 41


def cache_list(folder: Path) -> str:
    """A table of the libraries in the cache, each verified; the last used first."""
    cached = _cached_items(folder)
    entries = [_cells_and_details(folder, item) for item in reversed(cached) if item.is_library]
    present = [entry for entry in entries if entry]
    cells = [("name", "size", "last used", "state"), *(row for row, _ in present)]
    head, *rows = table_rows(f"<{_NAME} >9 <16 <", cells)
    lines = [head, "-" * WIDTH]
    for row, (_, details) in zip(rows, present, strict=True):
        lines += [row, *details]
    lines += ["-" * WIDTH] if len(lines) > 2 else []
    return "\n".join([*lines, f"{_count_text(cached)} (cap {size_text(size_cap())})", str(folder)])


def cache_prune(
    folder: Path,
    *,
    older_than: str | None = None,
    everything: bool = False,
    max_size: str | None = None,
) -> str:
    """Prune the cache of corrupt, old and surplus libraries; returns the report.

    Args:
        folder: the cache.
        older_than: removes libraries that were not used for this long, e.g. "30d".
        everything: removes everything.
        max_size: how much may stay, e.g. "500M"; the cache's cap by default.
    """
    cap = parse_size(max_size, "--max-size") if max_size else size_cap()
    before = time.time() - parse_age(older_than, "--older-than") if older_than else 0
    if not _cached_items(folder):
        return f"nothing to remove in {folder}"
    try:
        removed, remaining = prune_cache(
            folder, cap, before=math.inf if everything else before, corrupt=True
        )
    except OSError as error:
        raise TorchwheelError(f"{error.filename or folder}: {error.strerror}") from error
    busy = "; the rest is in use by a build" if everything and remaining else ""
    return f"removed: {_count_text(removed)}\nstays:   {_count_text(remaining)}{busy}\n{folder}"


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
    return name if len(name) <= _NAME else f"{name[: _NAME - 1]}…"


def _count_text(found: Sequence[CacheItem]) -> str:
    libraries = [item.size for item in found if item.is_library]
    work = [item.size for item in found if not item.is_library]
    return (
        f"{len(libraries)} {'library' if len(libraries) == 1 else 'libraries'}, "
        f"{size_text(sum(libraries))}; "
        f"{len(work)} work folder{'' if len(work) == 1 else 's'}, {size_text(sum(work))}"
    )
