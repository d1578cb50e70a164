"""The native build: one plan as data, rendered to ninja, used by setup.py."""

from torchwheel.builder.library import NativeLibrary
from torchwheel.builder.setuptools_ext import setup_arguments

__all__ = ["NativeLibrary", "setup_arguments"]
