"""Gate `content`: the project's packages, its dist-info, its libraries and their SBOM, no more."""

from base64 import urlsafe_b64decode
from collections.abc import Callable, Iterable
from pathlib import PurePosixPath

from packaging.utils import canonicalize_name

from torchwheel.check.declared import Declared
from torchwheel.check.facts import GateError, Limits, WheelFacts
from torchwheel.inspect.installed import (
    PROGRAMS,
    is_outside,
    owner_of,
    runs_at_start,
)
from torchwheel.inspect.sbom import FILE, BuiltLibrary, is_grafted
from torchwheel.inspect.wheel import Wheel, is_library
from torchwheel_runtime.arch.model import BRANDS
from torchwheel_runtime.claims import Claims
from torchwheel_runtime.text import join_names, quote
from torchwheel_runtime.toolkit.lock import ONE_RELEASE
from torchwheel_runtime.validate.torch_rules import range_contains
from torchwheel_runtime.versions import minor_version

_METADATA = (
    *("METADATA", "WHEEL", "RECORD", "torchwheel.json", "variant.json"),
    *("entry_points.txt", "top_level.txt"),
)
_TORCH = "torch"
_OF_ANOTHER = "is read as the metadata of another package"
_LICENSES = ("LICENSE", "LICENCE", "COPYING", "NOTICE", "AUTHORS")
"""Beginnings of the names that setuptools takes for licenses; before version 77 beside METADATA."""


def content(facts: WheelFacts, limits: Limits) -> str:
    """Every file belongs to the project, and nothing runs or is installed beside its packages."""
    wheel, libraries = facts.wheel.read(), facts.libraries.read()
    require_content(wheel, limits.project, lambda name: bool(limits.reason("content", name)))
    for library in libraries:
        if not is_library(library.name):
            raise GateError(f"{library.name}: is machine code, and its name is no library's")
    if wheel.claims:
        require_sbom(wheel, wheel.claims, [library.name for library in libraries])
    tops = {member.split("/")[0] for member in wheel.members}
    own = join_names(sorted(top for top in tops if not top.endswith(".dist-info")))
    known = "" if limits.project else ", not held against a pyproject.toml"
    return f"{own}, {len(libraries)} libraries{known}"


def require_sbom(wheel: Wheel, claims: Claims, libraries: Iterable[str]) -> None:
    """Raise a GateError unless the SBOM names these libraries, made as the claims say."""
    sbom = wheel.sbom
    if sbom is None:
        raise GateError(f"no {FILE} in the wheel's dist-info; build it again")
    if (sbom.name, sbom.version) != (wheel.name, str(wheel.version)):
        says = f"expected {wheel.name} {wheel.version}"
        raise GateError(f"{FILE}: {says}, found {quote(sbom.name)} {quote(sbom.version)}")
    found = {one.file: one.sha256 for one in sbom.libraries}
    expected = {name: hex_digest(wheel, name) for name in libraries}
    for name in sorted({*found, *expected}):
        if found.get(name) != expected.get(name):
            hashes = [one.get(name, "no such library") for one in (expected, found)]
            raise GateError(f"{FILE}: {name}: expected {hashes[0]}, found {quote(hashes[1])}")
    for library in sbom.libraries:
        if not is_grafted(library.file) and (fault := _fault_of_materials(library, claims)):
            raise GateError(f"{FILE}: {library.file}: {fault}")


def hex_digest(wheel: Wheel, member: str) -> str:
    """The sha256 of a file by RECORD; empty if it is not there."""
    entry = wheel.record.get(member)
    return urlsafe_b64decode(entry.digest.removeprefix("sha256=") + "=").hex() if entry else ""


def _fault_of_materials(library: BuiltLibrary, claims: Claims) -> str | None:
    """What a library was made with that is not what its claims say; None if it agrees."""
    part = claims.part_of(library.file)
    needs, made = part.needs if part else claims.needs, library.materials
    if not any(one.role == "compiler" for one in made):
        return "expected its compiler, found none"
    if needs.backend:
        expected = [f"{BRANDS[needs.backend]} {needs.toolkit_version}"]
        if (found := [str(one) for one in made if one.role == "toolkit"]) != expected:
            return f"expected {expected[0]}, found {join_names(map(quote, found)) or 'no toolkit'}"
        for one in made:
            if one.name in ONE_RELEASE and minor_version(one.version) != needs.toolkit_version:
                return f"expected a part of {expected[0]}, found {quote(str(one))}"
    torch = [one.version for one in made if one.name == _TORCH]
    if needs.torch_range and not torch and not (part and part.kind == "entry_points"):
        return f"expected the headers of torch{needs.torch_range}, found none"
    for version in torch:
        if needs.torch_range and not range_contains(needs.torch_range, version):
            return f"expected headers of torch{needs.torch_range}, found {quote(version)}"
    return None


def require_content(
    wheel: Wheel, declared: Declared | None, allowed: Callable[[str], bool] = lambda _: False
) -> None:
    """Raise a GateError at the first file that is none of the project's.

    Args:
        wheel: the wheel.
        declared: the project; None if its sources are not at hand. Then no package may have the
            name of a requirement, of a module of Python or of a package that others install.
        allowed: whether a file is declared as meant.
    """
    if wheel.named.build:
        tag = "".join(map(str, wheel.named.build))
        raise GateError(f"its file name has the build tag {tag}; none expected")
    for member in wheel.members:
        if fault := _fault_of(member, wheel, declared):
            if allowed(member):
                continue
            raise GateError(f"{member}: {fault}")
    for member in wheel.executable:
        if not is_library(member) and not allowed(member):
            raise GateError(f"{member}: is executable; only libraries are")
    if not any(
        name.endswith(".dist-info/entry_points.txt") and allowed(name) for name in wheel.members
    ):
        _require_entry_points(wheel, declared)


def _fault_of(member: str, wheel: Wheel, declared: Declared | None) -> str | None:
    path = PurePosixPath(member)
    top = path.parts[0]
    if runs_at_start(member):
        return "runs whenever Python starts"
    if is_outside(member):
        expected = f"; {_packages_text(declared)}" if declared else ""
        return f"is installed outside the packages{expected}"
    if len(path.parts) > 1 and top.endswith(".dist-info"):
        return _fault_of_metadata(path, wheel, declared)
    if len(path.parts) > 1 and top == f"{wheel.path.name.split('-')[0]}.libs":
        return None if is_library(member) else "is no library, beside those of auditwheel"
    if declared:
        return _fault_of_package(
            path, top.partition(".")[0] if len(path.parts) == 1 else top, declared
        )
    return _fault_of_top(top, wheel)


def _fault_of_metadata(path: PurePosixPath, wheel: Wheel, declared: Declared | None) -> str | None:
    """Why a file of a dist-info folder is none of this wheel's, or of no build."""
    if canonicalize_name(path.parts[0].removesuffix(".dist-info").rpartition("-")[0]) != wheel.name:
        return _OF_ANOTHER
    # What builds write is known of the project's own; of others another spelling is refused.
    other_case = path.name.casefold() in map(str.casefold, _METADATA) and path.name not in _METADATA
    own = _is_metadata(PurePosixPath(*path.parts[1:])) if declared else not other_case
    return None if own else "is no metadata that a build writes"


def _fault_of_top(top: str, wheel: Wheel) -> str | None:
    """Why a top name cannot be the project's, whatever its sources say."""
    if top == "__pycache__":
        return "is compiled Python, which other packages' files may use"
    if top.casefold().endswith((".dist-info", ".egg-info")):
        return _OF_ANOTHER
    owner = owner_of(top, wheel.name, wheel.metadata)
    return f"has the name of {owner}" if owner else None


def _fault_of_package(path: PurePosixPath, name: str, declared: Declared) -> str | None:
    """Why a file of the package or module `name` is none of the project's."""
    if path.suffix == ".pyc":
        return "is compiled Python, which no source can be held against"
    is_module = len(path.parts) > 1 or path.suffix in (".py", ".so")
    allowed = is_module and name in declared.packages
    return None if allowed else f"is not of the project; {_packages_text(declared)}"


def _is_metadata(path: PurePosixPath) -> bool:
    """Whether a file of dist-info is of a build: an installer's files and code are not."""
    if path.parts[0] in ("licenses", "sboms"):
        return len(path.parts) > 1
    return len(path.parts) == 1 and (path.name in _METADATA or path.name.startswith(_LICENSES))


def _packages_text(declared: Declared) -> str:
    return f"expected files of {join_names(declared.packages)}"


def _require_entry_points(wheel: Wheel, declared: Declared | None) -> None:
    """Every entry point is one that the project declares; each must be readable.

    Without the project's sources a program must be named after it, as must a group of others: they
    are run by other programs, some whenever those start.
    """
    if fault := wheel.faults.get("entry_points"):
        raise GateError(fault)
    for group, names in wheel.entry_points.items():
        programs = group in PROGRAMS
        for name, target in names.items():
            what = f"entry_points.txt: {group} {quote(name)} = {quote(target)}"
            if declared:
                if declared.entry_points.get(group, {}).get(name) != target:
                    raise GateError(f"{what} is not in the project's pyproject.toml")
            elif not f"{canonicalize_name(name if programs else group)}-".startswith(
                f"{wheel.name}-"
            ):
                fault = "is not named after the project" if programs else "runs in other programs"
                raise GateError(f"{what} {fault}")
