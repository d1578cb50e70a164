"""Reads and compares version numbers."""

from __future__ import annotations

import contextlib
import functools
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from packaging.requirements import Requirement
    from packaging.specifiers import SpecifierSet

# No number of a version has more than nine digits; a limit keeps int() fast on hostile text.
_NUMBERS = re.compile(r"\s*(\d{1,9}(?:\.\d{1,9})*)", re.ASCII)
# Python converts no number of more than 4300 digits.
_LONG_NUMBER = re.compile(r"\d{1000}", re.ASCII)
# Not compiled, because the import of an extension needs neither.
_TOOL = r"(?a)\bV(\d{1,9}\.\d{1,9}\.\d{1,9})\b"
_HEADER = r"(?am)^\s*#\s*define\s+{}_VERSION_(MAJOR|MINOR)\s+(\d{{1,9}})\b"


def version_numbers(text: str) -> tuple[int, ...]:
    """The numbers a version begins with: (6, 4, 43482) of "6.4.43482-0f2d"; () if it has none."""
    match = _NUMBERS.match(text)
    return tuple(int(part) for part in match[1].split(".")) if match else ()


def has_long_number(text: str) -> bool:
    """Whether a version, a range of versions or a requirement has a number that nobody means.

    `packaging` reads ranges without converting their numbers, and fails where it compares them.
    """
    return _LONG_NUMBER.search(text) is not None


@functools.lru_cache(maxsize=1024)
def is_specifier(text: str) -> bool:
    """Whether a text is a range of versions, e.g. ">=9,<16"."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet  # noqa: PLC0415 - slow to import

    try:
        SpecifierSet(text)
    except InvalidSpecifier:
        return False
    return not has_long_number(text)


def is_requirement(text: str) -> bool:
    """Whether a text is a requirement (PEP 508): pip also takes options, paths and addresses."""
    from packaging.requirements import InvalidRequirement, Requirement  # noqa: PLC0415 - as above

    try:
        Requirement(text)
    except InvalidRequirement:
        return False
    return not has_long_number(text)


def required_range(
    key: str, requirements: Iterable[Requirement], markers: Mapping[str, str]
) -> SpecifierSet | None:
    """The versions of a distribution that requirements allow together, without those of extras.

    Args:
        key: its normalised name.
        requirements: those of METADATA.
        markers: the variables of markers that differ from the running Python's.

    Returns:
        The range, which may be one of any version; None if no requirement names it.
    """
    from packaging.markers import UndefinedEnvironmentName  # noqa: PLC0415 - slow to import
    from packaging.specifiers import SpecifierSet  # noqa: PLC0415
    from packaging.utils import canonicalize_name  # noqa: PLC0415

    found = None
    for one in requirements:
        with contextlib.suppress(UndefinedEnvironmentName):
            holds = one.marker is None or one.marker.evaluate({**markers, "extra": ""})
            if holds and canonicalize_name(one.name) == key:
                found = (found or SpecifierSet()) & one.specifier
    return found


def major_version(text: str) -> str:
    """The major: "13" of "13.0.88"; empty if there is no number."""
    return ".".join(str(part) for part in version_numbers(text)[:1])


def minor_version(text: str) -> str:
    """Major and minor: "13.0" of "13.0.88"."""
    return ".".join(str(part) for part in version_numbers(text)[:2])


def tool_version(text: str) -> str | None:
    """The release in the output of a CUDA tool, or in PTX that it wrote: "13.0.88"."""
    match = re.search(_TOOL, text)
    return match[1] if match else None


def header_version(header: str, name: str) -> str | None:
    """The release that a header of AMD's defines, "6.4"; `name` is HIP or ROCM."""
    parts = dict(re.findall(_HEADER.format(name), header))
    return f"{int(parts['MAJOR'])}.{int(parts['MINOR'])}" if len(parts) == 2 else None
