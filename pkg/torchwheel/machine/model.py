"""Facts of a machine, as data; torch's, which an import asks for, are in torch_model."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchwheel.arch.backend import Backend
    from torchwheel.arch.devices import Gpu
    from torchwheel.machine.torch_model import Torch
    from torchwheel.toolkit.host import HostCompiler


@dataclasses.dataclass(frozen=True)
class Driver:
    """A GPU driver.

    Attributes:
        backend: whose GPUs it drives.
        version: its release, e.g. "580.95.05".
        cuda: the newest CUDA release it serves, e.g. "13.0"; None for AMD's.
    """

    backend: Backend
    version: str
    cuda: str | None = None


@dataclasses.dataclass(frozen=True)
class FoundToolkit:
    """A device compiler on this machine.

    Attributes:
        backend: "cuda" or "rocm".
        root: its folder.
        release: e.g. "13.0"; empty where the compiler tells none.
        where: what led to it, e.g. "CUDA_HOME" or "nvcc on the PATH".
        problem: one line if its parts are not of one release, are missing or do not start.
        fix: what to do about the problem, with a command where there is one.
    """

    backend: Backend
    root: Path
    release: str
    where: str
    problem: str | None = None
    fix: str | None = None


@dataclasses.dataclass(frozen=True)
class Machine:
    """Everything that decides whether a library can be built or loaded here.

    Attributes:
        python: e.g. "3.12.3".
        platform: e.g. "linux_x86_64".
        glibc: e.g. "2.36"; None where the C library is another.
        torch: None where there is none, `torch_problem` then says why. A torch with a problem is
            installed and cannot be imported.
        driver: None where there is none, `driver_problem` then says why.
        gpus: the visible ones; `gpus_problem` says why there are none.
        host: the C++ compiler; None where there is none, `host_problem` then says why.
        toolkits: every device compiler found, the preferred one first.
    """

    python: str
    platform: str
    glibc: str | None
    torch: Torch | None = None
    torch_problem: str | None = None
    driver: Driver | None = None
    driver_problem: str | None = None
    gpus: tuple[Gpu, ...] = ()
    gpus_problem: str | None = None
    host: HostCompiler | None = None
    host_problem: str | None = None
    toolkits: tuple[FoundToolkit, ...] = ()
