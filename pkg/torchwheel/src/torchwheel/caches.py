"""`torchwheel cache`: what torchwheel's cache holds, how large and old it is, and its removal.

Each cache is a folder in the cache's folder, and all that is in it can be had again. A library that
was built just in time has the lock of its target. Of the other caches nothing is removed while
another process uses one, because a build reads more than it locks. No link is followed.
"""

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from torchwheel_runtime.errors import UsageError
from torchwheel_runtime.jit.store import (
    CacheItem,
    cache_list,
    fault_of,
    list_items,
    remove_item,
    tidy,
    tree_facts,
)
from torchwheel_runtime.ownership import trusted_path
from torchwheel_runtime.text import WIDTH, nearest, parse_age, quote, size_text, table_rows
from torchwheel_runtime.toolkit.cache import cache_path, hold_alone


def _items(folder: Path) -> list[CacheItem]:
    """What is directly in a folder, the least recently used first."""
    paths = [path for path in folder.iterdir() if not path.name.startswith(".")]
    items = [CacheItem(path, *tree_facts(path)) for path in paths if path.suffix != ".lock"]
    return sorted(items, key=lambda item: item.used)


@dataclasses.dataclass(frozen=True)
class Cache:
    """One of the caches.

    Attributes:
        name: of its folder, and in calls.
        about: what is in it, and what brings it back.
        items: lists what can be removed one by one.
    """

    name: str
    about: str
    items: Callable[[Path], list[CacheItem]] = _items


JIT = Cache("jit", "libraries built just in time; the first call, `torchwheel jit`", list_items)
CACHES = (
    JIT,
    Cache("toolkits", "CUDA toolkits of PyPI; `torchwheel toolkit`, or a build"),
    Cache("verified", "which toolkits compiled a probe kernel; a build"),
    Cache("torch", "torch's headers; a build"),
    Cache("build", "objects and compiler caches of projects; a build, which takes longer"),
    Cache("probes", "what compilers can do; a build"),
    Cache("sources", "projects that were fetched; `torchwheel wheels`"),
    Cache("sdists", "sdists of releases; `torchwheel build`"),
    Cache("smoke", "environments to try wheels in; `torchwheel smoke`, or a build"),
    Cache("containers", "packages for containers; `torchwheel wheels --container`"),
    Cache("images", "logs of images, which the engine has; `torchwheel images`"),
    Cache("evidence", "which files were verified; `torchwheel verify`"),
)
"""All that torchwheel keeps for later, but the images of a container engine."""


def list_caches(name: str | None) -> str:
    """A table of all caches, or of what is in one."""
    folder = cache_path()
    if name == JIT.name:
        return cache_list(folder / name)
    if name:
        rows = [
            (item.path.name, size_text(item.size), _date(item))
            for item in reversed(_found(*_named([name])))
        ]
        return _table("<41 >9 <", [("name", "size", "last used"), *rows], str(folder / name))
    found = [(one, items) for one in CACHES if (items := _found(one))]
    head = ("cache", "size", "last used", "what it holds; what brings it back")
    table = [(one.name, _size(items), _date(items[-1]), one.about) for one, items in found]
    total = _size([item for _, items in found for item in items])
    return _table("<10 >9 <16 <", [head, *table], f"{total} in {folder}")


def clean_caches(names: Sequence[str], older_than: str | None, *, dry_run: bool) -> str:
    """Remove what is in the named caches, and say what went.

    Args:
        names: of caches; none for all.
        older_than: the age of what goes, e.g. "30d"; None for all. What is corrupt goes, too.
        dry_run: whether nothing is removed.
    """
    before = time.time() - parse_age(older_than, "--older-than") if older_than else math.inf
    chosen, folder = _named(names) if names else CACHES, cache_path()
    rows: list[tuple[str, ...]] = []
    with hold_alone(folder) as alone:
        for one, items in [(one, items) for one in chosen if (items := _found(one))]:
            place = trusted_path(folder / one.name)
            doomed = [i for i in items if i.used < before or (one is JIT and fault_of(place, i))]
            gone = doomed if alone or one is JIT else []
            if not dry_run:
                gone = [item for item in gone if remove_item(place, item)]
                tidy(place)
            stays = tree_facts(place)[0] - sum(item.size for item in gone if dry_run)
            busy = "in use" if len(gone) < len(doomed) else ""
            rows.append((one.name, _size(gone), size_text(stays), busy))
    if not rows:
        return f"nothing to remove in {folder}"
    head = ("cache", "would go" if dry_run else "removed", "stays", "")
    return _table("<10 >9 >9 <", [head, *rows], str(folder))


def _named(names: Sequence[str]) -> list[Cache]:
    known = {one.name: one for one in CACHES}
    for name in names:
        if name not in known:
            raise UsageError(f"no cache {quote(name)}; {nearest(name, known)}")
    return [known[name] for name in dict.fromkeys(names)]


def _found(one: Cache) -> list[CacheItem]:
    """What a cache holds; nothing if its folder is missing, or a link."""
    folder = cache_path() / one.name
    if folder.is_symlink() or not folder.is_dir():
        return []
    return one.items(trusted_path(folder))


def _size(items: Sequence[CacheItem]) -> str:
    return size_text(sum(item.size for item in items))


def _date(item: CacheItem) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(item.used))


def _table(form: str, rows: Sequence[Sequence[str]], closing: str) -> str:
    head, *others = table_rows(form, rows, wrap=True)
    line = "-" * WIDTH
    return "\n".join([head, line, *others, *([line] if others else []), closing])
