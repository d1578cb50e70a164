"""Gate `content`: the project's own packages, its dist-info and its libraries, and nothing else."""

import configparser
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath

from packaging.utils import canonicalize_name

from torchwheel.check.declared import Declared
from torchwheel.check.facts import GateError, Limits, WheelFacts
from torchwheel.inspect.wheel import Wheel, is_library
from torchwheel.text import join_names, quote

_AT_START = ("sitecustomize", "usercustomize")
"""Modules that Python imports whenever it starts."""
_METADATA = ("METADATA", "WHEEL", "RECORD", "torchwheel.json", "entry_points.txt", "top_level.txt")
_LICENSES = ("LICENSE", "LICENCE", "COPYING", "NOTICE", "AUTHORS")
"""Beginnings of the names that setuptools takes for licenses; before version 77 beside METADATA."""


def content(facts: WheelFacts, limits: Limits) -> str:
    """Every file belongs to the project, and nothing runs or is installed beside its packages."""
    wheel, libraries = facts.wheel.read(), facts.libraries.read()
    require_content(wheel, limits.project, lambda name: bool(limits.reason("content", name)))
    for library in libraries:
        if not is_library(library.name):
            raise GateError(f"{library.name}: is machine code, and its name is no library's")
    tops = sorted(_tops(wheel))
    known = "" if limits.project else ", not held against a pyproject.toml"
    return f"{join_names(tops)}, {len(libraries)} libraries{known}"


def require_content(
    wheel: Wheel, declared: Declared | None, allowed: Callable[[str], bool] = lambda _: False
) -> None:
    """Raise a GateError at the first file that is none of the project's.

    Args:
        wheel: the wheel.
        declared: the project; None if its sources are not at hand. Then no package may have the
            name of a requirement or of a module of Python.
        allowed: whether a file is declared as meant.
    """
    if wheel.build:
        raise GateError(f"its file name has the build tag {wheel.build}; none expected")
    for member in wheel.members:
        if fault := _fault_of(member, wheel, declared):
            if allowed(member):
                continue
            raise GateError(f"{member}: {fault}")
    for member in wheel.executable:
        if not is_library(member) and not allowed(member):
            raise GateError(f"{member}: is executable; only libraries are")
    _require_entry_points(wheel, declared)


def _fault_of(member: str, wheel: Wheel, declared: Declared | None) -> str | None:
    path = PurePosixPath(member)
    top = path.parts[0]
    if len(path.parts) == 1 and path.suffix == ".pth":
        return "runs whenever Python starts"
    if len(path.parts) > 1 and top.endswith(".dist-info"):
        own = declared is None or _is_metadata(PurePosixPath(*path.parts[1:]))
        return None if own else "is no metadata that a build writes"
    if len(path.parts) > 1 and top.endswith(".data"):
        return f"is installed outside the packages; {_expected(declared)}" if declared else None
    if len(path.parts) > 1 and top == f"{wheel.path.name.split('-')[0]}.libs":
        return None if is_library(member) else "is no library, beside those of auditwheel"
    name = top.partition(".")[0] if len(path.parts) == 1 else top
    if declared:
        return _foreign(path, name, declared)
    return f"has the name of {taken}" if (taken := _taken(name, wheel)) else None


def _foreign(path: PurePosixPath, name: str, declared: Declared) -> str | None:
    """Why a file of the package or module `name` is none of the project's."""
    if path.suffix == ".pyc":
        return "is compiled Python, which no source can be held against"
    is_module = len(path.parts) > 1 or path.suffix in (".py", ".so")
    allowed = is_module and name in declared.packages
    return None if allowed else f"is not of the project; {_expected(declared)}"


def _is_metadata(path: PurePosixPath) -> bool:
    """Whether a file of dist-info is of a build: an installer's files and code are not."""
    if path.parts[0] in ("licenses", "sboms"):
        return len(path.parts) > 1
    return len(path.parts) == 1 and (path.name in _METADATA or path.name.startswith(_LICENSES))


def _expected(declared: Declared | None) -> str:
    return f"expected files of {join_names(declared.packages if declared else ())}"


def _taken(name: str, wheel: Wheel) -> str | None:
    """Whose name a package has, if it is one of Python's or a requirement's."""
    if name in sys.stdlib_module_names or name in _AT_START:
        return "a module of Python"
    for requirement in wheel.metadata.requires_dist or ():
        if canonicalize_name(requirement.name) == canonicalize_name(name) != wheel.name:
            return f"its requirement {requirement.name}"
    return None


def _tops(wheel: Wheel) -> set[str]:
    tops = {member.split("/")[0] for member in wheel.members}
    return {top for top in tops if not top.endswith(".dist-info")}


def _require_entry_points(wheel: Wheel, declared: Declared | None) -> None:
    """Every entry point is one that the project declares; each must be readable."""
    found = parse_entry_points(wheel.entry_points)
    for group, names in found.items() if declared else ():
        expected = declared.entry_points.get(group, {}) if declared else {}
        for name, target in names.items():
            if expected.get(name) != target:
                what = f"{group} {quote(name)} = {quote(target)}"
                raise GateError(f"entry_points.txt: {what} is not in the project's pyproject.toml")


def parse_entry_points(text: str) -> Mapping[str, Mapping[str, str]]:
    """The entry points of entry_points.txt, by group; a GateError if it is malformed."""
    parser = configparser.ConfigParser(delimiters=("=",), interpolation=None, strict=True)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    try:
        parser.read_string(text)
    except configparser.Error as error:
        reason = " ".join(str(error).split())[:200]
        raise GateError(f"entry_points.txt: malformed: {quote(reason)}") from error
    sections: Sequence[str] = parser.sections()
    return {group: dict(parser.items(group)) for group in sections}
