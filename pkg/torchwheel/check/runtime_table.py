"""The table of what a library in a wheel may ask of the system (data/runtime.json)."""

import fnmatch
import functools
from collections.abc import Iterator
from typing import Any

from torchwheel.claims import Claims
from torchwheel.data import read


@functools.cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = read("runtime.json")
    return table


def allowed(claims: Claims) -> frozenset[str]:
    """Sonames that a wheel of this ABI, backend and toolkit may need from outside itself."""
    parts = ["system", claims.abi, *([claims.backend] if claims.backend else [])]
    names = (name for part in parts for name in _needed(part, claims))
    return frozenset(names) | {name for name in claims.borrowed if may_borrow(name, claims)}


def may_borrow(name: str, claims: Claims) -> bool:
    """Whether a wheel of this ABI and toolkit may need `name` because torch has loaded it."""
    patterns = _needed("borrowed", claims) if claims.abi == "aten" else ()
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _needed(part: str, claims: Claims) -> Iterator[str]:
    major = (claims.toolkit or "").partition(".")[0]
    for name in _table().get(part, {}).get("needed", ()):
        yield name.format(major=major)


def provided_by_torch(claims: Claims) -> frozenset[str]:
    """The part of `allowed` that is not the system's: torch or the GPU's runtime brings it."""
    return allowed(claims) - frozenset(_table()["system"]["needed"])


def why(part: str) -> str:
    """The reason a part of the table is as it is."""
    return str(_table()[part]["why"])


def optional_symbol(name: str) -> bool:
    """Whether a weak symbol is one that systems need not have."""
    patterns = _table()["optional_symbols"]["patterns"]
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
