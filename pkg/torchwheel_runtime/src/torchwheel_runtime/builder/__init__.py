"""The native build: one plan as data, rendered to ninja, for setup.py and for first use alike."""

from torchwheel_runtime.builder.extension import ArchFilter, Extension, Module, Operator, Split
from torchwheel_runtime.builder.flags import Flags, Probe

__all__ = ["ArchFilter", "Extension", "Flags", "Module", "Operator", "Probe", "Split"]
