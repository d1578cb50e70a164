"""Rules on a GPU, a driver and the C library, and all that count when a library is loaded.

A first call on a GPU waits for what this imports.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Sequence

from torchwheel_runtime.arch.devices import Driver, Gpu
from torchwheel_runtime.arch.model import Arch, Backend, backend_of
from torchwheel_runtime.arch.runs import machine_code_runs_on, runs_on
from torchwheel_runtime.claims import LibraryNeeds
from torchwheel_runtime.machine.facts import Torch
from torchwheel_runtime.validate import torch_rules
from torchwheel_runtime.validate.findings import Finding
from torchwheel_runtime.validate.torch_rules import (
    check_backend,
    check_built_with,
    check_torch_range,
)
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
                expected=f"code for {describe_gpu(gpu)}",
                found=" ".join(map(str, needs.archs)),
                fix=fix.format(gpu.arch),
            )
        elif driver and driver.cuda and not torch_rules.compiles_ptx(driver.cuda, release):
            findings[gpu.arch] = Finding(
                "ptx",
                expected=f"a driver for CUDA {release}, whose PTX {describe_gpu(gpu)} depends on",
                found=describe_driver(driver),
                fix=f"update the driver, or {fix.format(gpu.arch)}",
            )
    if {gpu.arch for gpu in gpus} == findings.keys():
        return list(findings.values())
    return [dataclasses.replace(finding, level="warning") for finding in findings.values()]


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
        expected=f"NVIDIA's driver {floor} or later, which CUDA {major} needs",
        found=describe_driver(installed),
        fix=f"update the driver, or on a data-centre GPU `apt-get install cuda-compat-{major}-0`",
    )


def describe_driver(driver: Driver) -> str:
    """E.g. "driver 580.95.05, for CUDA up to 13.0"; the version is empty if it is not known."""
    name = f"driver {driver.version}" if driver.version else "a driver"
    return name + (f", for CUDA up to {driver.cuda}" if driver.cuda else "")


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
        expected=f"glibc {floor} or later, which {package}'s wheel is for",
        found=f"glibc {glibc}" if glibc else "a C library that is not glibc",
        fix="use a newer system, or build it here: "
        f"`pip install {torch_rules.OF_ITS_AUTHORS} --no-binary {package} {package}`",
    )


_OTHER_WHEEL = "install a wheel with code for {} (without one, the first call builds it)"


def load_findings(
    needs: LibraryNeeds,
    torch: Torch | None,
    glibc: str | None,
    driver: Driver | None = None,
    gpus: Sequence[Gpu] = (),
    *,
    package: str,
    glibc_floor: str | None = None,
) -> tuple[Finding, ...]:
    """The rules that do not hold when a library is loaded, the gravest first.

    The facts of torch and of the C library suffice and cost microseconds. To ask for a driver and
    for GPUs takes milliseconds and must not happen before a fork: the doctor does it.

    Args:
        needs: those of the library.
        torch: None if there is none.
        glibc: the version of glibc; None if the C library is another.
        driver: the GPUs' driver, if the caller has asked for it.
        gpus: the visible GPUs, if the caller has asked for them.
        package: the distribution's name, for the advice.
        glibc_floor: the oldest glibc of the wheel's tag (`tag_floor`), if it is known.
    """
    findings = [
        check_glibc(glibc_floor, glibc, package),
        check_torch_range(needs, torch, package),
    ]
    if torch is not None:
        findings += [check_backend(needs, torch, package), check_built_with(needs, torch, package)]
    if needs.backend and needs.toolkit_version and (driver or gpus):
        findings.append(check_driver(needs.backend, needs.toolkit_version, driver))
        findings += check_code(needs, needs.toolkit_version, gpus, driver, _OTHER_WHEEL)
    return tuple(finding for finding in findings if finding is not None)
