"""Rules of GPUs, drivers and the C library."""

import dataclasses
import re
from collections.abc import Iterable, Sequence

from torchwheel.arch.devices import Gpu
from torchwheel.arch.model import Arch, Backend, backend_of
from torchwheel.arch.runs import machine_code_runs_on, runs_on
from torchwheel.claims import LibraryNeeds
from torchwheel.machine.facts import Driver
from torchwheel.validate import torch_rules
from torchwheel.validate.findings import Finding
from torchwheel.versions import major_version, version_numbers


def code(
    needs: LibraryNeeds, release: str, gpus: Sequence[Gpu], driver: Driver | None, fix: str
) -> list[Finding]:
    """There is code for every GPU; where one has none, others may have.

    Args:
        needs: those of the library; its arch list counts.
        release: the toolkit's, which is that of the PTX.
        gpus: the visible ones; those of another backend count for nothing.
        driver: theirs, which compiles PTX of no release but its own and older ones.
        fix: what brings code for a GPU that has none; "{}" stands for its arch.
    """
    gpus = [gpu for gpu in gpus if backend_of(gpu.arch) == needs.backend]
    found: dict[Arch, Finding] = {}
    for gpu in gpus:
        if any(machine_code_runs_on(arch, gpu.arch) for arch in needs.archs):
            continue
        if not any(runs_on(arch, gpu.arch) for arch in needs.archs):
            found[gpu.arch] = Finding(
                "archs",
                f"code for {_named(gpu)}",
                " ".join(map(str, needs.archs)),
                fix.format(gpu.arch),
            )
        elif driver and driver.cuda and not torch_rules.compiles_ptx(driver.cuda, release):
            found[gpu.arch] = Finding(
                "ptx",
                f"a driver for CUDA {release}, whose PTX {_named(gpu)} depends on",
                describe_driver(driver),
                f"update the driver, or {fix.format(gpu.arch)}",
            )
    useless = {gpu.arch for gpu in gpus} == found.keys()
    return [dataclasses.replace(finding, blocks=useless) for finding in found.values()]


def _named(gpu: Gpu) -> str:
    return f"GPU {gpu.index} ({gpu.name}, {gpu.arch})"


def driver(backend: Backend, release: str, here: Driver | None) -> Finding | None:
    """NVIDIA's driver serves the toolkit's release: each serves every minor of a CUDA major.

    A machine without a driver has no GPU, which is no fault. A compatibility package makes an old
    driver serve a newer CUDA than its own.
    """
    if backend != "cuda" or here is None or here.backend != "cuda":
        return None
    known = torch_rules.driver_floor(release)
    if known is None:  # a newer CUDA than the table
        return None
    floor, older = known
    if version_numbers(here.version) >= version_numbers(floor) or version_numbers(
        here.cuda or ""
    ) > version_numbers(older):
        return None
    major = major_version(release)
    return Finding(
        "driver",
        f"NVIDIA's driver {floor} or later, which CUDA {major} needs",
        describe_driver(here),
        f"update the driver, or on a data-centre GPU `apt-get install cuda-compat-{major}-0`",
    )


def describe_driver(here: Driver) -> str:
    """E.g. "driver 580.95.05, for CUDA up to 13.0"."""
    return f"driver {here.version}" + (f", for CUDA up to {here.cuda}" if here.cuda else "")


_MANYLINUX = r"(?a)manylinux_(\d{1,9})_(\d{1,9})_\w+"
_LEGACY = {"manylinux1": "2.5", "manylinux2010": "2.12", "manylinux2014": "2.17"}


def tag_floor(tags: Iterable[str]) -> str | None:
    """The oldest glibc that a wheel is for, of its platform tags: "2.28" of manylinux_2_28_x86_64.

    The oldest of them, if there are several; None if no tag tells, as "any" does not.
    """
    found = []
    for tag in tags:
        if match := re.fullmatch(_MANYLINUX, tag):
            found.append(f"{match[1]}.{match[2]}")
        elif version := _LEGACY.get(tag.partition("_")[0]):
            found.append(version)
    return min(found, key=version_numbers, default=None)


def glibc(wanted: str | None, here: str | None, package: str) -> Finding | None:
    """The C library is glibc, and not older than the wheel's tag says."""
    if wanted is None or (here is not None and version_numbers(here) >= version_numbers(wanted)):
        return None
    return Finding(
        "glibc",
        f"glibc {wanted} or later, which {package}'s wheel is for",
        f"glibc {here}" if here else "a C library that is not glibc",
        f"use a newer system, or build it here: `pip install --no-binary {package} {package}`",
    )
