"""Gate `metadata`: file name, METADATA, WHEEL and claims agree."""

import re

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from torchwheel.check.facts import GateError, Limits, WheelFacts
from torchwheel.inspect.wheel import Wheel
from torchwheel_runtime.claims import Claims
from torchwheel_runtime.files import record_hash


def metadata(facts: WheelFacts, _: Limits) -> str:
    """Name, version, local version, torch range and tags agree wherever they stand."""
    wheel, claims = facts.wheel.read(), facts.claims
    if fault := wheel.faults.get("metadata"):
        raise GateError(f"METADATA is not valid: {fault}")
    _require_equal("METADATA Name", canonicalize_name(wheel.metadata.name), wheel.name)
    _require_equal("METADATA Version", str(wheel.metadata.version), str(wheel.version))
    _require_equal("local version of the file name", wheel.version.local, claims.local)
    _require_equal("WHEEL Tag", _text(wheel.wheel_tags), _text(wheel.tags))
    _require_equal("WHEEL Root-Is-Purelib", wheel.purelib, claims.abi == "pure")
    _require_interpreter(wheel, claims)
    _require_torch(wheel, claims)
    _require_parts(wheel, claims)
    if gone := [library.file for library in claims.flags if library.file not in wheel.record]:
        raise GateError(f"flags of {gone[0]}: no such file in the wheel")
    flags = ", ".join(dict.fromkeys(flag for one in claims.flags for flag in one.flags))
    names = f"{wheel.name} {wheel.version}, torch{claims.torch_range}, {_text(wheel.tags)}"
    return f"{names}; flags {flags}" if flags else names


def _require_equal(what: str, found: object, expected: object) -> None:
    if found != expected:
        raise GateError(f"{what}: {expected} expected, got {found}")


def _text(tags: frozenset[object]) -> str:
    return " ".join(sorted(str(tag) for tag in tags))


_PAIRS = re.compile(r"(?P<python>cp3\d+)-(?P=python)|cp3\d+-abi3|py3-none")


def _require_interpreter(wheel: Wheel, claims: Claims) -> None:
    """A stable or pure wheel serves every Python 3; one of a project's own build one, or more.

    Such a wheel is aten, or stable and borrows what its torch loads. Gate `torch-symbols` proves
    by its symbols that it does.
    """
    pairs = sorted({"-".join((tag.interpreter, tag.abi)) for tag in wheel.tags})
    own = claims.abi == "aten" or (claims.abi == "stable" and claims.borrowed)
    right = len(pairs) == 1 and _PAIRS.fullmatch(pairs[0]) if own else pairs == ["py3-none"]
    if not right:
        expected = "one cp3x-cp3x, cp3x-abi3 or py3-none" if own else "py3-none"
        raise GateError(
            f"file name of an {claims.abi} wheel: {expected} expected, got {', '.join(pairs)}"
        )


def _require_parts(wheel: Wheel, claims: Claims) -> None:
    """Each part's library is in the wheel with the claimed hash, by RECORD, which holds."""
    for part in claims.parts:
        entry = wheel.record.get(part.file)
        if entry is None:
            raise GateError(f"part {part.name}: no {part.file} in the wheel")
        try:
            claimed = record_hash(bytes.fromhex(part.sha256))
        except ValueError:
            claimed = part.sha256
        _require_equal(f"sha256 of {part.file}", entry.digest, claimed)


def _require_torch(wheel: Wheel, claims: Claims) -> None:
    """The wheel has one unconditional requirement on torch, with the claimed range."""
    requirements: list[Requirement] = wheel.metadata.requires_dist or []
    on_torch = [r for r in requirements if canonicalize_name(r.name) == "torch"]
    expected = f"torch{claims.torch_range}"
    if len(on_torch) != 1 or on_torch[0].marker or on_torch[0].url or on_torch[0].extras:
        got = "; ".join(map(str, on_torch)) or "none"
        raise GateError(f"Requires-Dist: exactly {expected} expected, got {got}")
    if on_torch[0].specifier != SpecifierSet(claims.torch_range):
        raise GateError(f"Requires-Dist: {expected} expected, got {on_torch[0]}")
