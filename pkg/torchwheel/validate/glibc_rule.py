"""The rule about the C library, and what a wheel's platform tag says of it."""

import re
from collections.abc import Iterable

from torchwheel.machine.versions import numbers
from torchwheel.validate.finding import Finding

_MANYLINUX = r"(?a)manylinux_(\d{1,9})_(\d{1,9})_\w+"
_LEGACY = {"manylinux1": "2.5", "manylinux2010": "2.12", "manylinux2014": "2.17"}


def floor(tags: Iterable[str]) -> str | None:
    """The oldest glibc that a wheel is for, of its platform tags: "2.28" of manylinux_2_28_x86_64.

    The oldest of them, if there are several; None if no tag tells, as "any" does not.
    """
    found = []
    for tag in tags:
        if match := re.fullmatch(_MANYLINUX, tag):
            found.append(f"{match[1]}.{match[2]}")
        elif version := _LEGACY.get(tag.partition("_")[0]):
            found.append(version)
    return min(found, key=numbers, default=None)


def glibc(wanted: str | None, here: str | None, package: str) -> Finding | None:
    """The C library is glibc, and not older than the wheel's tag says."""
    if wanted is None or (here is not None and numbers(here) >= numbers(wanted)):
        return None
    return Finding(
        "glibc",
        f"glibc {wanted} or later, which {package}'s wheel is for",
        f"glibc {here}" if here else "a C library that is not glibc",
        f"use a newer system, or build it here: `pip install --no-binary {package} {package}`",
    )
