"""Facts of a machine and its torch, as data."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from torchwheel.arch.model import Backend

_Fact = TypeVar("_Fact")


@dataclasses.dataclass(frozen=True)
class Absent:
    """A fact that could not be had, with the reason in one line; a probe returns it."""

    reason: str

    def __str__(self) -> str:
        return self.reason


@dataclasses.dataclass(frozen=True)
class SilentDriver(Absent):
    """A GPU driver that is installed and does not answer.

    Attributes:
        problem: what is wrong, without the fix.
        fix: what to do; None if that is not known.
    """

    problem: str
    fix: str | None = None


@dataclasses.dataclass(frozen=True)
class HiddenGpus(Absent):
    """GPUs that an environment variable hides.

    Attributes:
        variable: its name, e.g. "CUDA_VISIBLE_DEVICES".
    """

    variable: str


def split_absent(fact: _Fact | Absent) -> tuple[_Fact | None, Absent | None]:
    """Either (fact, None) or (None, why it is absent)."""
    return (None, fact) if isinstance(fact, Absent) else (fact, None)


@dataclasses.dataclass(frozen=True)
class Torch:
    """The torch of this Python.

    Attributes:
        version: e.g. "2.11.0+cu130".
        cuda: the CUDA release it was built with, e.g. "13.0"; None for any other build.
        hip: the HIP release it was built with.
        folder: the package's folder.
        old_abi: whether it was built with libstdc++'s old strings.
    """

    version: str
    cuda: str | None
    hip: str | None
    folder: Path
    old_abi: bool = False

    @property
    def minor(self) -> str:
        """E.g. "2.11"."""
        return ".".join(self.version.split("+")[0].split(".")[:2])

    @property
    def backend(self) -> Backend | None:
        """The GPUs that it is built for; None for CPUs only."""
        return "rocm" if self.hip else "cuda" if self.cuda else None

    def built_with(self, backend: Backend | None) -> str | None:
        """The release of `backend`'s toolkit that it was built with; None for another's build."""
        return self.hip if backend == "rocm" else self.cuda


if TYPE_CHECKING:
    from torchwheel.arch.devices import Gpu
    from torchwheel.arch.model import Backend

    pass
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
class InstalledToolkit:
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
    torch_problem: Absent | None = None
    driver: Driver | None = None
    driver_problem: Absent | None = None
    gpus: tuple[Gpu, ...] = ()
    gpus_problem: Absent | None = None
    host: HostCompiler | None = None
    host_problem: Absent | None = None
    toolkits: tuple[InstalledToolkit, ...] = ()
