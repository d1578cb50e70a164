"""Rules about GPUs, drivers and the C library."""

import dataclasses
import re
from collections.abc import Iterable, Sequence

from torchwheel_runtime.arch.devices import Driver, Gpu
from torchwheel_runtime.arch.model import Arch, Backend, backend_of
from torchwheel_runtime.arch.runs import machine_code_runs_on, runs_on
from torchwheel_runtime.claims import LibraryNeeds
from torchwheel_runtime.validate import torch_rules
from torchwheel_runtime.validate.findings import Finding
from torchwheel_runtime.versions import major_version, version_numbers


def check_code(
    needs: LibraryNeeds, release: str, gpus: Sequence[Gpu], driver: Driver | None, fix: str
) -> list[Finding]:
    """There is code for every GPU; a finding blocks if no GPU has code.

    Args:
        needs: those of the library; its arch list counts.
        release: the toolkit's release, which is also the release of the PTX.
        gpus: the visible GPUs; GPUs of another backend do not count.
        driver: the GPUs' driver, which compiles PTX of its own and older releases only.
        fix: how to get code for a GPU that has none; "{}" stands for its arch.
    """
    gpus = [gpu for gpu in gpus if backend_of(gpu.arch) == needs.backend]
    findings: dict[Arch, Finding] = {}
    for gpu in gpus:
        if any(machine_code_runs_on(arch, gpu.arch) for arch in needs.archs):
            continue
        if not any(runs_on(arch, gpu.arch) for arch in needs.archs):
            findings[gpu.arch] = Finding(
                "archs",
                f"code for {describe_gpu(gpu)}",
                " ".join(map(str, needs.archs)),
                fix.format(gpu.arch),
            )
        elif driver and driver.cuda and not torch_rules.compiles_ptx(driver.cuda, release):
            findings[gpu.arch] = Finding(
                "ptx",
                f"a driver for CUDA {release}, whose PTX {describe_gpu(gpu)} depends on",
                describe_driver(driver),
                f"update the driver, or {fix.format(gpu.arch)}",
            )
    no_code = {gpu.arch for gpu in gpus} == findings.keys()
    return [dataclasses.replace(finding, blocks=no_code) for finding in findings.values()]


def describe_gpu(gpu: Gpu) -> str:
    """E.g. "GPU 0 (NVIDIA H200, 9.0)"."""
    return f"GPU {gpu.index} ({gpu.name}, {gpu.arch})"


def check_driver(backend: Backend, release: str, installed: Driver | None) -> Finding | None:
    """NVIDIA's driver serves the toolkit's release; a driver serves every minor of a CUDA major.

    A machine without a driver has no GPU, which is no fault. With a compatibility package an old
    driver serves a newer CUDA than its own.
    """
    if backend != "cuda" or installed is None or installed.backend != "cuda":
        return None
    requirement = torch_rules.driver_floor(release)
    if requirement is None:  # a newer CUDA than the table
        return None
    floor, older = requirement
    new_enough = version_numbers(installed.version) >= version_numbers(floor)
    if new_enough or version_numbers(installed.cuda or "") > version_numbers(older):
        return None
    major = major_version(release)
    return Finding(
        "driver",
        f"NVIDIA's driver {floor} or later, which CUDA {major} needs",
        describe_driver(installed),
        f"update the driver, or on a data-centre GPU `apt-get install cuda-compat-{major}-0`",
    )


def describe_driver(driver: Driver) -> str:
    """E.g. "driver 580.95.05, for CUDA up to 13.0"."""
    return f"driver {driver.version}" + (f", for CUDA up to {driver.cuda}" if driver.cuda else "")


_MANYLINUX = r"(?a)manylinux_(\d{1,9})_(\d{1,9})_\w+"
_LEGACY = {"manylinux1": "2.5", "manylinux2010": "2.12", "manylinux2014": "2.17"}


def tag_floor(tags: Iterable[str]) -> str | None:
    """The oldest glibc that a wheel's platform tags name: "2.28" of manylinux_2_28_x86_64.

    None if no tag names one, e.g. "any".
    """
    floors = []
    for tag in tags:
        if match := re.fullmatch(_MANYLINUX, tag):
            floors.append(f"{match[1]}.{match[2]}")
        elif version := _LEGACY.get(tag.partition("_")[0]):
            floors.append(version)
    return min(floors, key=version_numbers, default=None)


def check_glibc(floor: str | None, glibc: str | None, package: str) -> Finding | None:
    """The C library is glibc, and at least the release that the wheel's tag names."""
    if floor is None or (glibc is not None and version_numbers(glibc) >= version_numbers(floor)):
        return None
    return Finding(
        "glibc",
        f"glibc {floor} or later, which {package}'s wheel is for",
        f"glibc {glibc}" if glibc else "a C library that is not glibc",
        f"use a newer system, or build it here: `pip install --no-binary {package} {package}`",
    )
