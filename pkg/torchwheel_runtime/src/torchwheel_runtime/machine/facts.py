"""Facts of a machine and its torch, as data."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from torchwheel_runtime.arch.model import Backend

_Fact = TypeVar("_Fact")

_OTHER_BACKENDS = {
    **{name: name for name in ("xpu", "npu", "musa", "mlu", "gcu", "hpu", "maca", "corex", "dtk")},
    **{name: name for name in ("sdaa", "neuron", "ipu", "tpu", "xla", "openvino", "directml")},
    **{"mps": "mps", "metal": "mps", "vulkan": "vulkan", "ascend": "npu", "cann": "npu"},
    **{"gaudi": "hpu", "habana": "hpu", "metax": "maca"},
}
"""Backends of torch that torchwheel does not know (Intel's, Ascend's, Moore Threads', …), by the
words for them in local versions."""


def other_backend(local: str) -> str | None:
    """The backend that torchwheel does not know and a local version names, e.g. "xpu"."""
    words = re.findall(r"[a-z]+", local)
    return next((_OTHER_BACKENDS[word] for word in words if word in _OTHER_BACKENDS), None)


@dataclasses.dataclass(frozen=True)
class Absent:
    """A missing fact: what probes return instead of the fact.

    Attributes:
        reason: why it is missing, in one line.
        fix: what to do; None if that is not known.
        problem: of a program or a driver that is there and does not answer: what is wrong, without
            the fix.
    """

    reason: str
    fix: str | None = None
    problem: str | None = None

    def __str__(self) -> str:
        return self.reason


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
        old_abi: whether it was built with _GLIBCXX_USE_CXX11_ABI=0.
        xpu: the release of Intel's SYCL that it was built with, e.g. "20250301".
        rocm: the ROCm release that it names beside HIP's; None before ROCm 10, where they are one.
    """

    version: str
    cuda: str | None
    hip: str | None
    folder: Path
    old_abi: bool = False
    xpu: str | None = None
    rocm: str | None = None

    @property
    def minor(self) -> str:
        """E.g. "2.11"."""
        return ".".join(self.version.split("+")[0].split(".")[:2])

    @property
    def backend(self) -> Backend | None:
        """The backend that it is built for; None for CPUs only, and for one that is not known."""
        return "rocm" if self.hip else "cuda" if self.cuda else None

    @property
    def other(self) -> str | None:
        """The backend that it is built for, where torchwheel does not know it, e.g. "xpu"."""
        return "xpu" if self.xpu else other_backend(self.version.partition("+")[2])

    def built_with(self, backend: Backend | None) -> str | None:
        """The release of `backend`'s toolkit that it was built with; None for another backend."""
        return self.rocm or self.hip if backend == "rocm" else self.cuda


if TYPE_CHECKING:
    from torchwheel_runtime.arch.devices import Driver, Gpu
    from torchwheel_runtime.toolkit.host import HostCompiler


@dataclasses.dataclass(frozen=True)
class InstalledToolkit:
    """A device compiler on this machine.

    Attributes:
        backend: "cuda" or "rocm".
        root: its folder.
        release: e.g. "13.0"; empty if the compiler does not report it.
        where: how it was found, e.g. "CUDA_HOME" or "nvcc on the PATH".
        problem: one line if parts are missing, do not start or are of several releases.
        fix: how to fix the problem, if possible with a command.
    """

    backend: Backend
    root: Path
    release: str
    where: str
    problem: str | None = None
    fix: str | None = None


@dataclasses.dataclass(frozen=True)
class Machine:
    """The facts that decide whether a library can be built or loaded on this machine.

    Attributes:
        python: e.g. "3.12.3".
        platform: e.g. "linux_x86_64".
        glibc: e.g. "2.36"; None if the C library is not glibc.
        torch: None if it is not installed. `torch_problem` says why it is missing, or why the
            installed torch cannot be imported.
        driver: None if it is missing; `driver_problem` says why.
        gpus: the visible GPUs; `gpus_problem` says why there are none.
        host: the C++ compiler; None if it is missing, `host_problem` says why.
        toolkits: every toolkit, the preferred one first.
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
