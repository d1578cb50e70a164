"""The calls that are timed: a module of this package for each family."""

from collections.abc import Mapping
from importlib import import_module

from kernelbench.case import Family

from fusedops import registry

FAMILIES: Mapping[str, Family] = {
    family: import_module(f"families.{family}").FAMILY for family in registry.families()
}
