"""Is a torch of the range that a wheel claims?

The ranges that torchwheel writes are read here: packaging, which reads all, takes 6 ms to import,
and this is asked at every import of an extension.
"""

import re

from torchwheel.machine.versions import numbers

_AT_LEAST = re.compile(r">=(\d+(?:\.\d+)*)", re.ASCII)
_ONE_SERIES = re.compile(r"==(\d+(?:\.\d+)*)\.\*", re.ASCII)
_FINAL = re.compile(r"(\d+(?:\.\d+)*)(?:\+[a-z0-9.]+)?", re.ASCII)


def contains(wanted: str, version: str) -> bool:
    """Whether `version`, e.g. "2.11.0+cu130", is in `wanted`, e.g. ">=2.11" or "==2.6.*".

    A pre-release counts where it stands: 2.12.0a0 is before 2.12.
    """
    final = _FINAL.fullmatch(version)
    if final and (floor := _AT_LEAST.fullmatch(wanted)):
        return _without_zeros(final[1]) >= _without_zeros(floor[1])
    if final and (series := _ONE_SERIES.fullmatch(wanted)):
        wanted_numbers, found = numbers(series[1]), numbers(final[1])
        padded = found + (0,) * len(wanted_numbers)
        return padded[: len(wanted_numbers)] == wanted_numbers
    return _as_packaging_has_it(wanted, version)


def _without_zeros(text: str) -> tuple[int, ...]:
    """2.11 and 2.11.0 are one release."""
    found = numbers(text)
    while found and found[-1] == 0:
        found = found[:-1]
    return found


def _as_packaging_has_it(wanted: str, version: str) -> bool:
    from packaging.specifiers import SpecifierSet  # noqa: PLC0415 - see above
    from packaging.version import InvalidVersion, Version  # noqa: PLC0415

    try:
        parsed = Version(version)
    except InvalidVersion:  # a build of somebody's own: its numbers count
        parsed = Version(".".join(map(str, numbers(version))) or "0")
    return SpecifierSet(wanted).contains(parsed, prereleases=True)
