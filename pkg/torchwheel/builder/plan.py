"""A build as data: steps with their inputs, outputs and full command lines."""

import dataclasses
from pathlib import Path, PurePosixPath


@dataclasses.dataclass(frozen=True)
class Step:
    """One command. `label` is what a person sees; `depfile` lists headers after the first run."""

    label: str
    command: tuple[str, ...]
    inputs: tuple[str, ...]
    output: str
    depfile: str | None = None


@dataclasses.dataclass(frozen=True)
class Plan:
    """Steps in an order in which each finds its inputs; `output` is the library."""

    steps: tuple[Step, ...]
    output: str


@dataclasses.dataclass(frozen=True)
class Target:
    """Everything outside the sources that decides the bytes of a build.

    Attributes:
        name: names the library file, e.g. "cu130-stable".
        abi: ABI flavour, "stable".
        source: the project's folder.
        cuda_home: the toolkit's folder.
        toolkit: the toolkit's release, e.g. "13.0".
        gencode: nvcc's flags for the arch list.
        cxx: the host compiler.
        torch_include: torch's include folder.
        torch_floor: least torch of the stable ABI, e.g. "2.11".
        launcher: put before each compile, e.g. ("sccache",).
    """

    name: str
    abi: str
    source: Path
    cuda_home: Path
    toolkit: str
    gencode: tuple[str, ...]
    cxx: str
    torch_include: Path
    torch_floor: str
    launcher: tuple[str, ...] = ()


def target_version(floor: str) -> str:
    """TORCH_TARGET_VERSION of a torch release: "2.11" is 0x020b000000000000."""
    major, minor = (int(part) for part in floor.split(".")[:2])
    return f"0x{major:02x}{minor:02x}000000000000"


def object_name(source: str) -> str:
    """Where a source's object lies, e.g. "obj/csrc/kernels/bias.cu.o"."""
    return str(PurePosixPath("obj") / f"{source}.o")
