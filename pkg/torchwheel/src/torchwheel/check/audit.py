"""The libraries and symbols that a wheel may use, and its platform tag by auditwheel."""

import dataclasses
import fnmatch
import functools
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torchwheel.data import read
from torchwheel_runtime.arch.model import runtime_major
from torchwheel_runtime.claims import Claims, LibraryNeeds, Part
from torchwheel_runtime.inspect.elf import Library
from torchwheel_runtime.versions import version_numbers

# Without a handler, Python prints auditwheel's warnings between the gates.
logging.getLogger("auditwheel").addHandler(logging.NullHandler())

DRIVER = frozenset({"libcuda.so.1", "libnvidia-ml.so.1"})
"""Libraries of the GPU's driver: a wheel that needs them loads on machines with a GPU alone, which
its project must declare."""


@functools.cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = read("runtime.json")
    return table


def allowed_libraries(claims: Claims) -> frozenset[str]:
    """Sonames that a wheel of these claims may need from the system or torch."""
    if claims.parts:
        return frozenset[str]().union(*map(allowed_for_part, claims.parts))
    names = _needed(claims.abi, claims.needs)
    return names | {name for name in claims.borrowed if may_borrow(name, claims)}


def allowed_for_part(part: Part) -> frozenset[str]:
    """Sonames that a part of a universal wheel may need."""
    # Only a front end knows torch, and none its Python module: it serves every Python.
    known = _needed(part.abi if part.kind == "front_end" else part.kind, part.needs)
    return known - {"libtorch_python.so"}


def _needed(abi: str, needs: LibraryNeeds) -> frozenset[str]:
    rows = ["system", abi, *([needs.backend] if needs.backend else [])]
    return frozenset(name for row in rows for name in _row(row, needs))


def may_borrow(name: str, claims: Claims) -> bool:
    """Whether a wheel of this ABI and toolkit may need `name` because its torch loads it."""
    rows = {"aten": ("borrowed",), "stable": ("borrowed", "borrowed_of_torch")}
    patterns = (one for row in rows.get(claims.abi, ()) for one in _row(row, claims.needs))
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _row(name_: str, needs: LibraryNeeds) -> Iterator[str]:
    major = runtime_major(needs.backend or "cuda", needs.toolkit_version or "")
    for name in _table().get(name_, {}).get("needed", ()):
        yield name.format(major=major)


def declarable_libraries() -> frozenset[str]:
    """Libraries that a project may declare to need: of the GPU's driver, or of most systems."""
    return DRIVER.union(_table()["manylinux"]["needed"])


def provided_by_torch(claims: Claims) -> frozenset[str]:
    """Libraries that torch, the GPU's runtime or its driver provides, not the system."""
    return allowed_libraries(claims).union(DRIVER) - frozenset(_table()["system"]["needed"])


def reason_for(part: str) -> str:
    """The reason for a part of the table."""
    return str(_table()[part]["why"])


def optional_symbol(name: str) -> bool:
    """Whether a library works without this weak symbol."""
    patterns = _table()["optional_symbols"]["patterns"]
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


NAMED = 6
"""Symbols named per version; the rest is counted."""
LONGEST = 40
"""Longer symbols are cut."""


@dataclasses.dataclass(frozen=True)
class Audit:
    """The platform tag, None without machine code; `causes` say why no stricter tag fits."""

    tag: str | None
    aliases: tuple[str, ...] = ()
    causes: tuple[str, ...] = ()


def audit(wheel: Path, exclude: frozenset[str], libraries: tuple[Library, ...]) -> Audit:
    """Ask auditwheel; torch provides the libraries in `exclude`, so the system need not.

    Raises:
        ModuleNotFoundError: torchwheel[pipeline] is not installed; `inspect` does without.
    """
    from auditwheel.error import NonPlatformWheelError  # noqa: PLC0415
    from auditwheel.wheel_abi import analyze_wheel_abi, get_wheel_elfdata  # noqa: PLC0415

    if not libraries:
        return Audit(None)
    # auditwheel caches its answer by path, and a rebuilt wheel has the same path.
    get_wheel_elfdata.cache_clear()
    try:
        analysis = analyze_wheel_abi(
            None, None, wheel, exclude, disable_isa_ext_check=False, allow_graft=False
        )
    except NonPlatformWheelError:
        return Audit(None)
    policy = analysis.overall_policy
    stricter = min((other for other in analysis.policies if policy < other), default=None)
    causes = symbol_causes(libraries, stricter.symbol_versions) if stricter else ()
    external = analysis.external_refs.get((stricter or policy).name)
    if external and external.libs:
        outside = ", ".join(sorted(external.libs))
        causes += (f"libraries outside every manylinux system: {outside}",)
    return Audit(policy.name, policy.aliases, causes)


def symbol_causes(
    libraries: tuple[Library, ...], permitted: Mapping[str, frozenset[str]]
) -> tuple[str, ...]:
    """The versions that a stricter policy forbids, each with the symbols that need it."""
    symbols: dict[tuple[str, str], set[str]] = {}
    for symbol in (symbol for library in libraries for symbol in library.undefined):
        prefix, _, number = (symbol.version or "").partition("_")
        if prefix in permitted and number not in permitted[prefix]:
            symbols.setdefault((prefix, number), set()).add(symbol.name)
    newest_first = sorted(symbols, key=lambda v: (v[0], version_numbers(v[1])), reverse=True)
    return tuple(f"{prefix}_{n} by {_names(symbols[prefix, n])}" for prefix, n in newest_first)


def _names(symbols: set[str]) -> str:
    # Mangled names can be longer than a line.
    names = sorted({n if len(n) <= LONGEST else f"{n[:LONGEST]}…" for n in symbols})
    more = len(symbols) - min(len(names), NAMED)
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")
