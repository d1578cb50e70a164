"""The folders of this checkout that other processes import the packages from."""

import os
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = (
    "pkg",
    "pkg/torchwheel/src",
    "pkg/torchwheel_runtime/src",
)
"""Those of fusedops, torchwheel and torchwheel_runtime, as pyproject.toml lists them."""


def python_path(root: Path = ROOT, *first: Path) -> str:
    """The value of PYTHONPATH with which a process imports the packages of a tree.

    Args:
        root: the tree, e.g. a copy of this one.
        first: folders that come before.
    """
    return os.pathsep.join(map(str, [*first, *(root / folder for folder in SOURCES)]))
