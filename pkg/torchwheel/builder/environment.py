"""How a build is told what to build: environment variables, so that any front end serves."""

from collections.abc import Mapping
from pathlib import Path

from torchwheel.builder.plan import Target
from torchwheel.errors import UsageError
from torchwheel.matrix.arch import Arch, gencode, parse

# The field's own names.
CUDA_HOME = "CUDA_HOME"
ARCH_LIST = "TORCH_CUDA_ARCH_LIST"
CXX = "CXX"
# Ours. Without ABI set, setup.py builds the pure-Python package.
ABI = "TORCHWHEEL_ABI"
NAME = "TORCHWHEEL_LIBRARY"
TOOLKIT = "TORCHWHEEL_TOOLKIT"
TORCH_INCLUDE = "TORCHWHEEL_TORCH_INCLUDE"
TORCH_FLOOR = "TORCHWHEEL_TORCH_FLOOR"
LAUNCHER = "TORCHWHEEL_LAUNCHER"
BUILD_FOLDER = "TORCHWHEEL_BUILD_FOLDER"


def arch_list(text: str) -> tuple[Arch, ...]:
    """TORCH_CUDA_ARCH_LIST as torch reads it: separated by ";" or blanks."""
    try:
        return tuple(parse(part) for part in text.replace(";", " ").split())
    except ValueError as error:
        raise UsageError(f"arch list {text!r}: {error}") from error


def target(environ: Mapping[str, str], source: Path) -> Target | None:
    """The target that `environ` describes; None for the pure-Python package."""
    abi = environ.get(ABI, "pure")
    if abi == "pure":
        return None
    if abi != "stable":
        raise UsageError(f"{ABI}={abi}: stable or pure expected")
    needed = (CUDA_HOME, TOOLKIT, ARCH_LIST, TORCH_INCLUDE, TORCH_FLOOR)
    missing = [name for name in needed if not environ.get(name)]
    if missing:
        raise UsageError(
            f"{ABI}={abi} needs {', '.join(missing)} too; `torchwheel wheels` sets them"
        )
    return Target(
        name=environ.get(NAME, abi),
        abi=abi,
        source=source.resolve(),
        cuda_home=Path(environ[CUDA_HOME]),
        toolkit=environ[TOOLKIT],
        gencode=tuple(flag for arch in arch_list(environ[ARCH_LIST]) for flag in gencode(arch)),
        cxx=environ.get(CXX) or "g++",
        torch_include=Path(environ[TORCH_INCLUDE]),
        torch_floor=environ[TORCH_FLOOR],
        launcher=tuple(environ.get(LAUNCHER, "").split()),
    )
