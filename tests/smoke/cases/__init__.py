"""The right results of the operators: a module of this package for each family.

A module has `CASES`, the ways of calling its public operators, and `PRIVATE`, arguments for those
that are not public. A family without public operators has no `CASES`, one without others no
`PRIVATE`.
"""

from importlib import import_module

from cases.case import DTYPES, Case, Private
from fusedops import registry

_FAMILIES = [import_module(f"cases.{family}") for family in registry.families()]

CASES: tuple[Case, ...] = tuple(
    case for family in _FAMILIES for case in getattr(family, "CASES", ())
)
PRIVATE: dict[str, Private] = {
    name: arguments
    for family in _FAMILIES
    for name, arguments in getattr(family, "PRIVATE", {}).items()
}

__all__ = ["CASES", "DTYPES", "PRIVATE", "Case"]
