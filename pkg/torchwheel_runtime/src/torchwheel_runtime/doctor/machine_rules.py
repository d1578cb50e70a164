"""Findings about the machine: does the library fit torch, GPUs and driver, and can it be built?"""

import dataclasses
from collections.abc import Iterator

from torchwheel_runtime.arch.model import Arch, Backend, runtime_major
from torchwheel_runtime.arch.model import backend_of as backend_of_gpu
from torchwheel_runtime.claims import Claims, LibraryNeeds
from torchwheel_runtime.doctor.case import Case, Package
from torchwheel_runtime.doctor.native import NativeLibrary, sort_archs
from torchwheel_runtime.doctor.package_rules import (
    libraries_to_judge,
    rebuild_command,
    reinstall_command,
)
from torchwheel_runtime.doctor.remedies import comes_with_other_torch, is_idle
from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.machine.facts import Machine, Torch
from torchwheel_runtime.runtime.operator_library import release_to_download
from torchwheel_runtime.runtime.status import MODE_VARIABLE, mode_problem
from torchwheel_runtime.text import join_names
from torchwheel_runtime.validate.at_load import load_findings
from torchwheel_runtime.validate.before_build import (
    archs_to_build,
    build_findings,
    check_two_toolkits,
    flavour_for,
    preferred_toolkit,
)
from torchwheel_runtime.validate.findings import Finding
from torchwheel_runtime.versions import version_numbers


def broken_torch(case: Case) -> Iterator[Finding]:
    """Torch is installed and cannot be imported."""
    machine = case.machine
    if needs_torch(case.package) and machine.torch_problem and machine.torch:
        release = machine.torch.version.partition("+")[0]
        yield Finding(
            "torch-works", str(machine.torch_problem), fix=torch_fix(machine, f"=={release}")
        )


def torch_fix(machine: Machine, release: str = "") -> str:
    """How to make torch work; installing it again is no help against what its import waits for."""
    if machine.torch_problem and machine.torch_problem.fix:
        return machine.torch_problem.fix
    return f"`pip install --force-reinstall torch{release}`"


def mismatched_library(case: Case) -> Iterator[Finding]:
    """The library needs another torch, backend, toolkit, driver, GPU or glibc."""
    machine, package = case.machine, case.package
    if not needs_torch(package):
        return
    natives = libraries_to_judge(package)
    code = any(native.code for native in natives)
    findings = load_findings(
        needs_of_binary(package, natives, machine),
        machine.torch,
        machine.glibc,
        machine.driver,
        # If the code could not be read, it is not known to be missing.
        machine.gpus if code else (),
        package=package.name,
        glibc_floor=max(
            filter(None, (n.glibc for n in natives)), key=version_numbers, default=None
        ),
    )
    lacking = package.imported.how != "imported" and any(
        comes_with_other_torch(soname, machine.torch)
        for native in natives
        for soname in (native.links.absent if native.links else ())
    )
    for finding in findings:
        if finding.rule == "backend" and is_idle(case):
            continue
        # Without a GPU, idle kernels are not a fault.
        matters = finding.rule != "backend" or machine.gpus or machine.driver
        if finding.rule == "glibc" and not (package.info and package.info.ours):
            fix = f"use a newer system, or build it here: {rebuild_command(package)}"
            yield dataclasses.replace(finding, fix=fix)
        elif finding.blocks or lacking or matters:
            yield finding


def needs_torch(package: Package) -> bool:
    """Whether the package needs torch, by its metadata, its libraries or its import."""
    if package.info and package.info.torch is not None:
        return True
    if "torch" in package.imported.missing_modules:
        return True
    return any(native.uses_torch for native in package.natives)


def needs_of_binary(
    package: Package, natives: tuple[NativeLibrary, ...], machine: Machine
) -> LibraryNeeds:
    """What the binaries need of a machine; the wheel's claims add what binaries do not show."""
    torch, gpus = machine.torch, machine.gpus
    if not natives:
        # A package without libraries builds them for the GPUs of this machine, or not at all.
        builds = backend_of_gpu(gpus[0].arch) if package.status and gpus else None
        return LibraryNeeds("stable" if builds else "pure", package.torch_range, builds)
    here = torch.backend if torch else None
    backends = {native.backend for native in natives if native.backend}
    backend = here if here in backends else next(iter(sorted(backends)), None)
    return LibraryNeeds(
        abi="aten" if any(native.for_one_torch for native in natives) else "stable",
        torch_range=package.torch_range,
        backend=backend,
        toolkit_version=_toolkit_release(package.claims, natives, backend, torch),
        archs=_arch_list(natives),
    )


def _toolkit_release(
    claims: Claims | None,
    natives: tuple[NativeLibrary, ...],
    backend: Backend | None,
    torch: Torch | None,
) -> str | None:
    """The release that the wheel claims, else the major of the runtime that it needs.

    If that major is torch's, the release is torch's too.
    """
    if claims and claims.toolkit_version:
        return claims.toolkit_version
    built = torch.built_with(backend) if torch else None
    for native in natives:
        major = (native.runtime or "").partition(".so.")[2].partition(".")[0]
        if major and (built is None or major != runtime_major(backend or "cuda", built)):
            return major
    return built


def _arch_list(natives: tuple[NativeLibrary, ...]) -> tuple[Arch, ...]:
    """The archs that the libraries have together."""
    ptx: set[Arch] = {arch for native in natives for arch in native.ptx}
    archs = {arch for native in natives for arch in native.archs} | ptx
    return tuple(arch.with_ptx(arch in ptx) for arch in sort_archs(archs))


_INSTALL_DRIVER = {
    "cuda": "install NVIDIA's driver, or start the container with its GPUs (`--gpus all`)",
    "rocm": "install AMD's driver (amdgpu), or start the container with `--device /dev/kfd`",
}


def missing_driver(case: Case) -> Iterator[Finding]:
    """A GPU has no driver, or its driver does not answer."""
    machine, backend = case.machine, _gpu_backend(case)
    absent = machine.driver_problem
    if backend is None or machine.driver or not absent:
        return
    if absent.problem:
        yield Finding("driver", absent.problem, fix=absent.fix or _INSTALL_DRIVER[backend])
    elif backend in case.hardware:
        maker = "an NVIDIA" if backend == "cuda" else "an AMD"
        says = f"there is {maker} GPU, and no driver for it: {absent}"
        yield Finding("driver", says, fix=_INSTALL_DRIVER[backend])


def hidden_gpus(case: Case) -> Iterator[Finding]:
    """The driver works, but its GPUs are hidden from this process."""
    machine = case.machine
    problem = machine.gpus_problem
    if _gpu_backend(case) and machine.driver and not machine.gpus and problem:
        yield Finding("gpus", str(problem), fix=problem.fix or "give this user the GPUs")


def _gpu_backend(case: Case) -> Backend | None:
    """The backend that both torch and the package have GPU code for."""
    torch, package = case.machine.torch, case.package
    return torch.backend if torch and package.has_kernels else None


def cannot_build(case: Case) -> Iterator[Finding]:
    """Operators wait for their first call on a GPU, and the build would fail then."""
    package, status, machine = case.package, case.package.status, case.machine
    torch = machine.torch
    if status is None or not status.waits or torch is None or torch.backend is None:
        return
    # A build is for the GPUs without prebuilt kernels, if they are known.
    waiting = tuple(gpu for gpu in machine.gpus if gpu.index in status.waiting_gpus)
    machine = dataclasses.replace(machine, gpus=waiting or machine.gpus)
    if not machine.gpus:
        return
    # For the front end of a universal wheel, kernels are built, which know no torch.
    abi = "stable" if status.waiting_gpus else flavour_for(torch)
    needs = LibraryNeeds(abi, backend=torch.backend)
    toolkit = preferred_toolkit(needs, torch, machine.toolkits)
    if (toolkit is None or toolkit.problem) and release_to_download(torch, case.environ):
        return
    try:
        if toolkit and toolkit.release:
            archs = archs_to_build(machine, toolkit, case.environ).archs
            needs = dataclasses.replace(needs, archs=archs)
    except TorchwheelError as error:
        fix = "set CUDA_HOME to a toolkit that can compile for it"
        yield Finding("archs", str(error), fix=fix)
        return
    yield from build_findings(needs, machine, toolkit, package=package.name)
    yield from check_two_toolkits(machine.toolkits)


def broken_cache(case: Case) -> Iterator[Finding]:
    """The cache cannot be written, or a library in it is corrupt."""
    if not (case.package.status and case.package.status.waits):
        return
    if problem := case.cache.problem:
        yield Finding(
            "cache",
            f"what is built cannot be cached, so each process builds anew: {problem}",
            fix="`export TORCHWHEEL_CACHE=FOLDER`, a folder of yours that can be written",
        )
    for key, fault in case.cache.corrupt.items():
        if key.name.partition(".")[0] == case.package.module:
            says = f"a library of the cache is corrupt: {fault}"
            yield Finding("cache", says, fix="`torchwheel cache clean jit`")


def unknown_mode(case: Case) -> Iterator[Finding]:
    """TORCHWHEEL_MODE names no mode, so that it has no effect."""
    problem = mode_problem(case.environ)
    if case.package.status and problem:
        yield Finding("mode", f"{problem}; auto is used", fix=f"`unset {MODE_VARIABLE}`")


def plain_pytorch(case: Case) -> Iterator[Finding]:
    """Operators run on plain PyTorch for a reason that no other finding reports."""
    status = case.package.status
    names: dict[str, list[str]] = {}
    for operator in status.operators if status else ():
        if operator.way == "fallback" and operator.faults:
            names.setdefault(operator.reason, []).append(operator.operator)
    for reason, alike in names.items():
        says = f"{join_names(alike)} on plain PyTorch: {reason}"
        yield Finding("fallback", says, fix=reinstall_command(case.package))
