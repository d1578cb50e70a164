"""The native build: one plan as data, rendered to ninja, for setup.py and for first use alike."""

from torchwheel.builder.extension import ArchFilter, Extension, Module, Operator, Split

__all__ = ["ArchFilter", "Extension", "Module", "Operator", "Split"]
