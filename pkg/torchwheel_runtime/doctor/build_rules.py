"""Findings about the build at first use: compiler, toolkit and cache."""

import dataclasses
from collections.abc import Iterator

from torchwheel_runtime.arch.devices import VisibleGpus
from torchwheel_runtime.arch.lists import choose_archs
from torchwheel_runtime.arch.model import Arch
from torchwheel_runtime.arch.releases import ToolkitRelease
from torchwheel_runtime.builder.extension import STABLE_SINCE
from torchwheel_runtime.claims import Abi, LibraryNeeds
from torchwheel_runtime.doctor.case import Case, Package
from torchwheel_runtime.doctor.installation_rules import reinstall_command
from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.machine.facts import InstalledToolkit, Machine, Torch
from torchwheel_runtime.runtime.local_target import DOWNLOAD_VARIABLE
from torchwheel_runtime.validate.before_build import (
    build_findings,
    check_two_toolkits,
    preferred_toolkit,
)
from torchwheel_runtime.validate.findings import Finding
from torchwheel_runtime.versions import version_numbers


def cannot_build(case: Case) -> Iterator[Finding]:
    """Operators wait for their first call on a GPU, and the build would fail then."""
    package = case.package
    machine = _machine_to_build_for(case)
    torch = machine.torch
    if torch is None or torch.backend is None or not machine.gpus or not _waits_for_build(package):
        return
    needs = LibraryNeeds(_flavour_to_build(package, torch), backend=torch.backend)
    toolkit = preferred_toolkit(needs, torch, machine.toolkits)
    downloads = case.environ.get(DOWNLOAD_VARIABLE) == "1" and torch.cuda
    if downloads and (toolkit is None or toolkit.problem):
        return
    try:
        needs = dataclasses.replace(needs, archs=_archs_to_build(case, machine, toolkit))
    except TorchwheelError as error:
        fix = "set CUDA_HOME to a toolkit that can compile for it"
        yield Finding("archs", str(error), fix=fix)
        return
    yield from build_findings(needs, machine, toolkit, package=package.name)
    yield from check_two_toolkits(machine.toolkits)


def broken_cache(case: Case) -> Iterator[Finding]:
    """The cache cannot be written, or a library in it is corrupt."""
    if not _waits_for_build(case.package):
        return
    if problem := case.cache.problem:
        yield Finding(
            "cache",
            f"what is built cannot be cached, so each process builds anew: {problem}",
            fix="`export TORCHWHEEL_CACHE=FOLDER`, a folder of yours that can be written",
        )
    for library in case.cache.corrupt:
        if library.key.name.partition(".")[0] == case.package.module:
            says = f"a library of the cache is corrupt: {library}"
            yield Finding("cache", says, fix="`torchwheel cache prune`")


def plain_pytorch(case: Case) -> Iterator[Finding]:
    """Operators run on plain PyTorch for a reason that no other finding reports."""
    status = case.package.status
    for operator in status.operators if status else ():
        if operator.way == "fallback" and any(refusal.fault for refusal in operator.refusals):
            says = f"{operator.operator} runs on plain PyTorch: {operator.reason}"
            yield Finding("fallback", says, fix=reinstall_command(case.package))


def _waits_for_build(package: Package) -> bool:
    status = package.status
    if status is None:
        return False
    return bool(status.waiting_gpus) or any(one.way == "waiting" for one in status.operators)


def _machine_to_build_for(case: Case) -> Machine:
    """The machine, with the GPUs that a build is for: those without prebuilt kernels, if known."""
    status = case.package.status
    waiting = status.waiting_gpus if status else ()
    gpus = tuple(gpu for gpu in case.machine.gpus if gpu.index in waiting)
    return dataclasses.replace(case.machine, gpus=gpus) if gpus else case.machine


def _flavour_to_build(package: Package, torch: Torch) -> Abi:
    """The ABI flavour that is built for an extension that has both.

    For the front end of a universal wheel, kernels are built, which know no torch.
    """
    if package.status and package.status.waiting_gpus:
        return "stable"
    return "stable" if version_numbers(torch.minor) >= version_numbers(STABLE_SINCE) else "aten"


def _archs_to_build(
    case: Case, machine: Machine, toolkit: InstalledToolkit | None
) -> tuple[Arch, ...]:
    """The archs that the build would compile for."""
    if toolkit is None or not toolkit.release:
        return ()
    chosen = choose_archs(
        ToolkitRelease(toolkit.backend, toolkit.release),
        case.environ,
        for_this_machine=True,
        look=lambda _, __: VisibleGpus(machine.gpus),
    )
    return chosen.archs
