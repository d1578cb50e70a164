"""A machine with a GPU and a package on it, all well, for tests to break in one place."""

import dataclasses
from pathlib import Path
from typing import Any

import wheelmaker
from torchwheel_runtime.arch.devices import Driver, Gpu
from torchwheel_runtime.arch.model import parse
from torchwheel_runtime.doctor.case import CacheState, Case, Package
from torchwheel_runtime.doctor.dist_info import DistInfo
from torchwheel_runtime.doctor.importing import ImportResult
from torchwheel_runtime.doctor.native import Links, NativeLibrary
from torchwheel_runtime.inspect.elf import GpuCode
from torchwheel_runtime.machine.facts import InstalledToolkit, Machine, Torch
from torchwheel_runtime.runtime.status import ExtensionStatus, OperatorStatus, Refusal
from torchwheel_runtime.toolkit.host import HostCompiler

SITE = Path("/venv/lib/python3.12/site-packages")
CUDA_TORCH = Torch("2.11.0+cu130", "13.0", None, SITE / "torch")
CPU_TORCH = Torch("2.11.0+cpu", None, None, SITE / "torch")
ROCM_TORCH = Torch("2.11.0+rocm7.2", None, "7.2.1", SITE / "torch")
H200 = Gpu(0, "NVIDIA H200", parse("9.0"))
TOOLKIT = InstalledToolkit("cuda", Path("/opt/cuda-13.0"), "13.0", "CUDA_HOME")
MACHINE = Machine(
    python="3.12.3",
    platform="linux_x86_64",
    glibc="2.36",
    torch=CUDA_TORCH,
    driver=Driver("cuda", "580.95.05", "13.0"),
    gpus=(H200,),
    host=HostCompiler(Path("/usr/bin/g++"), "gcc", "12.2.0"),
    toolkits=(TOOLKIT,),
)
NO_LINKS = Links({}, {}, frozenset(), frozenset(), frozenset(), ())


def links(**changes: Any) -> Links:
    """What the loader finds for a library, with `changes`."""
    return dataclasses.replace(NO_LINKS, torch_symbols=frozenset({"aoti_torch_new"}), **changes)


def native(name: str = "demo/_C.so", *, archs: str = "9.0", **changes: Any) -> NativeLibrary:
    """A CUDA library that is in use, with `changes`."""
    fields: dict[str, Any] = {
        "machine": "x86_64",
        "code": tuple(GpuCode("sass", parse(arch), ("kernel",)) for arch in archs.split()),
        "glibc": "2.28",
        "needed": ("libtorch.so", "libc.so.6"),
        "links": links(),
        "loaded": True,
    }
    return NativeLibrary(name=name, path=SITE / name, **{**fields, **changes})


def package(*, status: ExtensionStatus | None = None, **changes: Any) -> Package:
    """A package that is imported and has its library in use, with `changes`."""
    info = DistInfo(
        name="demo",
        version="1.0.0+cu130",
        packages=("demo",),
        claims=wheelmaker.stable(archs=("9.0",)),
        torch=">=2.11",
        ours=True,
    )
    fields: dict[str, Any] = {
        "name": "demo",
        "module": "demo",
        "root": SITE,
        "info": info,
        "imported": ImportResult(
            "imported", file=SITE / "demo/__init__.py", folders=(SITE / "demo",), status=status
        ),
        "natives": (native(),),
    }
    return Package(**{**fields, **changes})


def case(
    package_: Package | None = None, *, cache: CacheState | None = None, **machine: Any
) -> Case:
    """The package on the machine, whose facts are changed by `machine`."""
    changed = dataclasses.replace(MACHINE, **machine)
    return Case(changed, cache or CacheState(Path("/home/me/cache")), package_ or package())


def status(way: str, *refusals: Refusal, mode: str = "auto") -> ExtensionStatus:
    """Of a package with one operator."""
    library = SITE / "demo/_C.so" if way == "prebuilt" else None
    operator = OperatorStatus("scale", ("demo::scale",), way, library, refusals)  # type: ignore[arg-type]
    return ExtensionStatus("demo", mode, (operator,))


def waiting(**changes: Any) -> Package:
    """A package without a native library, whose operators are built at their first call."""
    info = DistInfo("demo", "1.0.0", ("demo",), claims=wheelmaker.PURE, torch=">=2.6", ours=True)
    return package(**{"info": info, "natives": (), "status": status("waiting"), **changes})
