"""Torches, claims, GPUs and toolkits that the rules are tried on."""

import dataclasses
from pathlib import Path

from torchwheel_runtime.arch.devices import Driver, Gpu
from torchwheel_runtime.arch.model import parse
from torchwheel_runtime.claims import LibraryNeeds
from torchwheel_runtime.machine.facts import InstalledToolkit, Machine, Torch
from torchwheel_runtime.toolkit.host import HostCompiler

CUDA = Torch("2.11.0+cu130", "13.0", None, Path("/torch"))
CUDA_12 = Torch("2.6.0+cu124", "12.4", None, Path("/torch"))
ROCM = Torch("2.11.0+rocm7.1", None, "7.1.25424", Path("/torch"))
CPU = Torch("2.13.0+cpu", None, None, Path("/torch"))

ARCHS = parse("8.0"), parse("9.0+PTX")
STABLE = LibraryNeeds("stable", ">=2.11", "cuda", "13.0", ARCHS)
ATEN = LibraryNeeds("aten", "==2.6.*", "cuda", "12.4", ARCHS)
HIP = LibraryNeeds("stable", ">=2.11", "rocm", "7.2", (parse("gfx90a"),))
PURE = LibraryNeeds("pure", ">=2.6")

R580 = Driver("cuda", "580.95.05", "13.0")
R470 = Driver("cuda", "470.82.01", "11.4")
A100 = Gpu(0, "NVIDIA A100", parse("8.0"))
P100 = Gpu(1, "Tesla P100", parse("6.0"))
B200 = Gpu(0, "NVIDIA B200", parse("10.0"))
MI250 = Gpu(0, "AMD Instinct MI250X", parse("gfx90a:sramecc+:xnack-"))
MI300 = Gpu(0, "AMD Instinct MI300X", parse("gfx942"))

TOOLKIT = InstalledToolkit("cuda", Path("/cuda-13.0"), "13.0", "nvcc on the PATH")
OLDER = InstalledToolkit("cuda", Path("/cuda-12.4"), "12.4", "/usr/local/cuda")
NEWER = InstalledToolkit("cuda", Path("/cuda-13.2"), "13.2", "/usr/local/cuda")
HIPCC = InstalledToolkit("rocm", Path("/opt/rocm"), "7.2", "/opt/rocm")
GCC = HostCompiler(Path("/usr/bin/g++"), "gcc", "12.2.0")
HERE = Machine("3.12.3", "linux_x86_64", "2.36", CUDA, driver=R580, gpus=(A100,), host=GCC)


def changed(value, **changes):
    return dataclasses.replace(value, **changes)
