"""The rules that are data (data/compat.json): which releases go together."""

import functools
from collections.abc import Mapping
from typing import Any

from torchwheel.arch.backend import Backend
from torchwheel.machine.versions import minor, numbers

_SHARED = {"any": 0, "major": 1, "minor": 2}


@functools.cache
def _table() -> dict[str, Any]:
    from torchwheel import data  # noqa: PLC0415 - an import of an extension seldom needs a table

    table: dict[str, Any] = data.read("compat.json")
    return table


def shared(backend: Backend, abi: str) -> tuple[int, str]:
    """How many numbers of a release a toolkit and torch must share, and why."""
    rule = _table()["toolkit_torch"][backend][abi]
    return _SHARED[rule["shared"]], str(rule["why"])


def driver_floor(release: str) -> tuple[str, str] | None:
    """For a CUDA release: the oldest driver, and the newest CUDA that older ones serve."""
    entry = _table()["driver"].get(release.partition(".")[0])
    return (entry["floor"], entry["older"]) if entry else None


def compiles_ptx(driver: str, release: str) -> bool:
    """Whether a driver that serves CUDA `driver` compiles PTX of CUDA `release`."""
    known = _table()["ptx"]
    there, wanted = known.get(minor(driver)), known.get(minor(release))
    if there is None or wanted is None:  # a newer one than the table
        return numbers(driver)[:2] >= numbers(release)[:2]
    return numbers(there) >= numbers(wanted)


def host_bounds(release: str) -> Mapping[str, str]:
    """C++ compilers that a CUDA release works with: {"gcc": ">=6,<16", …}; {} if unknown."""
    bounds: dict[str, str] = _table()["host_compiler"].get(minor(release), {})
    return bounds
