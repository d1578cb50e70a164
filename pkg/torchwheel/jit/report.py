"""What `torchwheel cache` prints, 80 columns wide."""

import math
import time
from collections.abc import Sequence
from pathlib import Path

from torchwheel.errors import TorchwheelError
from torchwheel.jit.find import CorruptError, open_verified
from torchwheel.jit.folder import secure
from torchwheel.jit.store import Item, items, prune
from torchwheel.text import WIDTH, detail_lines, parse_age, parse_size, size_cap, size_text

_NAME = 41


def cache_list(folder: Path) -> str:
    """A table of the libraries in the cache, each one checked; the last used first."""
    there = _there(folder)
    lines = [f"{'name':<{_NAME}}  {'size':>9}  {'last used':<16}  state", "-" * WIDTH]
    for item in reversed(there):
        if item.is_library:
            lines += _row(folder, item)
    lines += ["-" * WIDTH] if len(lines) > 2 else []
    return "\n".join([*lines, f"{_counted(there)} (cap {size_text(size_cap())})", str(folder)])


def cache_prune(
    folder: Path,
    *,
    older_than: str | None = None,
    everything: bool = False,
    max_size: str | None = None,
) -> str:
    """Remove from the cache what is corrupt, old or too much; says what went and what stayed.

    Args:
        folder: the cache.
        older_than: what was last used longer ago goes, e.g. "30d".
        everything: all goes.
        max_size: what may stay, e.g. "500M"; the cache's cap if it is not given.
    """
    cap = parse_size(max_size, "--max-size") if max_size else size_cap()
    before = time.time() - parse_age(older_than, "--older-than") if older_than else 0
    if not _there(folder):
        return f"nothing to remove in {folder}"
    try:
        gone, stayed = prune(folder, cap, before=math.inf if everything else before, corrupt=True)
    except OSError as error:
        raise TorchwheelError(f"{error.filename or folder}: {error.strerror}") from error
    busy = "; the rest is in use by a build" if everything and stayed else ""
    return f"removed: {_counted(gone)}\nstays:   {_counted(stayed)}{busy}\n{folder}"


def _there(folder: Path) -> list[Item]:
    try:
        secure(folder)
    except FileNotFoundError:
        return []
    return items(folder)


def _row(folder: Path, item: Item) -> list[str]:
    used = time.strftime("%Y-%m-%d %H:%M", time.localtime(item.used))
    figures = f"{size_text(item.size):>9}  {used}"
    try:
        _, entry = open_verified(folder, item.key)
    except CorruptError as error:
        why = f"{error.path.name}: {error.why}"
        return [f"{_cut(item.key.name)}  {figures}  corrupt", *detail_lines("why", why)]
    except FileNotFoundError:
        return []  # another process removed it
    return [
        f"{_cut(entry.name)}  {figures}  ok",
        *detail_lines("archs", " ".join(entry.archs)),
        *detail_lines("tools", entry.toolkit),
        *detail_lines("torch", entry.torch),
    ]


def _cut(name: str) -> str:
    return f"{name:<{_NAME}}" if len(name) <= _NAME else f"{name[: _NAME - 1]}…"


def _counted(found: Sequence[Item]) -> str:
    libraries = [item.size for item in found if item.is_library]
    work = [item.size for item in found if not item.is_library]
    return (
        f"{len(libraries)} {'library' if len(libraries) == 1 else 'libraries'}, "
        f"{size_text(sum(libraries))}; "
        f"{len(work)} work folder{'' if len(work) == 1 else 's'}, {size_text(sum(work))}"
    )
