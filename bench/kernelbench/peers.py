"""The libraries beside ours; what is not installed is noted where it would have run."""

import functools
import importlib
import os
from pathlib import Path
from typing import cast

import torch

from kernelbench.case import Call, Case

# By the names in tables and records. The second is what needs a whole search for each kernel.
MODES = {"compile": None, "max-autotune": "max-autotune-no-cudagraphs"}
# Those that compile for each shape; the others do once for a dtype, or at most a few kernels.
BY_SHAPE = frozenset([*MODES, "quack"])

PINS = Path(__file__).parents[1] / "peers.txt"
CACHE_VARIABLES = (
    "TORCHINDUCTOR_CACHE_DIR",
    "TRITON_CACHE_DIR",
    "FLASHINFER_WORKSPACE_BASE",
    "QUACK_CACHE_DIR",
    "CUTE_DSL_CACHE_DIR",
)


def pinned() -> list[str]:
    """The names of the distributions in bench/peers.txt."""
    lines = PINS.read_text(encoding="utf-8").splitlines()
    return [line.partition("==")[0] for line in lines if not line.startswith("#")]


def keep_caches(folder: Path) -> None:
    """Make the peers' compilers keep their results in `folder`, apart for each GPU and torch.

    The compilers' own keys do not all have both. Processes that compile ahead inherit it.
    """
    of = f"{torch.cuda.get_device_name()}-{torch.__version__}".replace(" ", "-")
    for variable in CACHE_VARIABLES:
        place = folder.resolve() / of / variable.lower()
        place.mkdir(parents=True, exist_ok=True)
        os.environ[variable] = str(place)


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
