"""Reads and compares version numbers."""

import re

# Nine digits are more than any version has, and int() takes them without a limit.
_NUMBERS = re.compile(r"\s*(\d{1,9}(?:\.\d{1,9})*)", re.ASCII)
# As text, not compiled: at the import of an extension none of them is needed.
_TOOL = r"(?a)\bV(\d{1,9}\.\d{1,9}\.\d{1,9})\b"
_HIP = r"(?am)^\s*#\s*define\s+HIP_VERSION_(MAJOR|MINOR)\s+(\d{1,9})\b"


def version_numbers(text: str) -> tuple[int, ...]:
    """The numbers a version begins with: (6, 4, 43482) of "6.4.43482-0f2d"; () if it has none."""
    found = _NUMBERS.match(text)
    return tuple(int(part) for part in found[1].split(".")) if found else ()


def major_version(text: str) -> str:
    """The major: "13" of "13.0.88"; empty if there is no number."""
    return ".".join(str(part) for part in version_numbers(text)[:1])


def minor_version(text: str) -> str:
    """Major and minor: "13.0" of "13.0.88"."""
    return ".".join(str(part) for part in version_numbers(text)[:2])


def tool_version(text: str) -> str | None:
    """The release that a tool of CUDA names in its output, or in the PTX it made: "13.0.88"."""
    found = re.search(_TOOL, text)
    return found[1] if found else None


def hip_version(header: str) -> str | None:
    """The HIP release that hip_version.h belongs to, which is ROCm's: "6.4"."""
    found = dict(re.findall(_HIP, header))
    return f"{int(found['MAJOR'])}.{int(found['MINOR'])}" if len(found) == 2 else None
