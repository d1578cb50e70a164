"""Gate `metadata`: file name, METADATA, WHEEL and claims tell one story."""

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from torchwheel.check.facts import GateError, Limits, WheelFacts
from torchwheel.claims import Claims
from torchwheel.inspect.wheel import Wheel


def metadata(facts: WheelFacts, _: Limits) -> str:
    """Name, version, local version, torch range and tags agree wherever they are stated."""
    wheel, claims = facts.wheel.read(), facts.claims
    _same("METADATA Name", canonicalize_name(wheel.metadata.name), wheel.name)
    _same("METADATA Version", str(wheel.metadata.version), str(wheel.version))
    _same("local version of the file name", wheel.version.local, claims.local)
    _same("WHEEL Tag", _text(wheel.wheel_tags), _text(wheel.tags))
    _same("WHEEL Root-Is-Purelib", wheel.root_is_purelib, claims.abi == "pure")
    _interpreter(wheel, claims)
    _torch(wheel, claims)
    return f"{wheel.name} {wheel.version}, torch{claims.torch_range}, {_text(wheel.tags)}"


def _same(what: str, found: object, expected: object) -> None:
    if found != expected:
        raise GateError(f"{what}: {expected} expected, got {found}")


def _text(tags: frozenset[object]) -> str:
    return " ".join(sorted(str(tag) for tag in tags))


def _interpreter(wheel: Wheel, claims: Claims) -> None:
    """A stable or pure wheel serves every Python 3; an aten wheel exactly one CPython."""
    found = sorted({(tag.interpreter, tag.abi) for tag in wheel.tags})
    right = (
        len(found) == 1 and found[0][0] == found[0][1] and found[0][0].startswith("cp3")
        if claims.abi == "aten"
        else found == [("py3", "none")]
    )
    if not right:
        expected = "one cp3x-cp3x" if claims.abi == "aten" else "py3-none"
        got = ", ".join("-".join(pair) for pair in found)
        raise GateError(f"file name of an {claims.abi} wheel: {expected} expected, got {got}")


def _torch(wheel: Wheel, claims: Claims) -> None:
    """One unconditional requirement on torch, whose range is the claimed one."""
    every: list[Requirement] = wheel.metadata.requires_dist or []
    found = [one for one in every if canonicalize_name(one.name) == "torch"]
    expected = f"torch{claims.torch_range}"
    if len(found) != 1 or found[0].marker or found[0].url or found[0].extras:
        got = "; ".join(map(str, found)) or "none"
        raise GateError(f"Requires-Dist: exactly {expected} expected, got {got}")
    if found[0].specifier != SpecifierSet(claims.torch_range):
        raise GateError(f"Requires-Dist: {expected} expected, got {found[0]}")
