"""The libraries beside ours; what is not installed is noted where it would have run."""

import functools
import importlib
from typing import cast

import torch

from kernelbench.case import Call, Case

# By the names in tables and records. The second is what needs a whole search for each kernel.
MODES = {"compile": None, "max-autotune": "max-autotune-no-cudagraphs"}


def library(module: str, *path: str) -> Call:
    """Something of a library that may not be installed: found at the first call."""

    @functools.cache
    def found() -> Call:
        return cast("Call", functools.reduce(getattr, path, importlib.import_module(module)))

    def call(*args: object) -> object:
        return found()(*args)

    return call


def compiled(case: Case, mode: str) -> Call:
    """The plain computation through torch.compile; it compiles at the first call."""
    return torch.compile(case.plain, dynamic=False, fullgraph=True, mode=MODES[mode])


def contestants(case: Case) -> dict[str, Call]:
    """Everyone but us: plain PyTorch, compiled in both modes, and the others."""
    first, *others = case.peers.items()
    through_compile = {mode: compiled(case, mode) for mode in MODES} if case.compiled else {}
    return dict([first]) | through_compile | dict(others)
