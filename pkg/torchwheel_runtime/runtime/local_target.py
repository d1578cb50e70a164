"""Finds the target of a library that is built here: toolkit, archs, torch, compilers."""

import dataclasses
import hashlib
import platform
from collections.abc import Mapping
from pathlib import Path

from torchwheel_runtime.arch.devices import Gpu, VisibleGpus
from torchwheel_runtime.arch.lists import VISIBLE, choose_archs
from torchwheel_runtime.arch.model import BRANDS, Arch
from torchwheel_runtime.arch.releases import ToolkitRelease
from torchwheel_runtime.builder import environment
from torchwheel_runtime.builder import target as targets
from torchwheel_runtime.builder.environment import operators_off
from torchwheel_runtime.builder.extension import Extension
from torchwheel_runtime.builder.probes import cpu_features, find_probes
from torchwheel_runtime.claims import LibraryNeeds, NativeAbi
from torchwheel_runtime.console import Progress
from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.machine import probe
from torchwheel_runtime.machine.discovery import find_machine_for_build
from torchwheel_runtime.machine.facts import Absent, InstalledToolkit, Torch
from torchwheel_runtime.machine.probe import program_output
from torchwheel_runtime.machine.torch import find_torch
from torchwheel_runtime.toolkit.cache import cache_folder
from torchwheel_runtime.toolkit.host import HostCompiler
from torchwheel_runtime.validate.before_build import build_findings, preferred_toolkit
from torchwheel_runtime.validate.findings import enforce
from torchwheel_runtime.versions import tool_version, version_numbers

DOWNLOAD_VARIABLE = "TORCHWHEEL_DOWNLOAD"
"""Set to 1, it allows a download of some 300 MB into the cache, pinned and hashed."""


def download_offer(torch: Torch) -> tuple[str, ...]:
    """The offer to download a toolkit, if one can be downloaded."""
    if _downloadable_release(torch) is None:
        return ()
    return (
        f"or set {DOWNLOAD_VARIABLE}=1: CUDA {torch.cuda} is then downloaded from PyPI, and kept",
    )


def _downloadable_release(torch: Torch) -> str | None:
    """The CUDA release to download: torch's, if the lock file has it."""
    # A late import: it reads the lock file.
    from torchwheel_runtime.toolkit.lock import components  # noqa: PLC0415

    try:
        return torch.cuda if torch.cuda and components(torch.cuda) else None
    except TorchwheelError:
        return None


def download_toolkit(
    torch: Torch, environ: Mapping[str, str], progress: Progress
) -> InstalledToolkit | None:
    """The CUDA toolkit of torch's release; None if the download is not allowed or impossible.

    Raises:
        TorchwheelError: the download failed.
    """
    release = _downloadable_release(torch) if environ.get(DOWNLOAD_VARIABLE) == "1" else None
    if release is None:
        return None
    from torchwheel_runtime.toolkit.provision import provision_pypi  # noqa: PLC0415 - starts pip

    root, _ = provision_pypi(release, probe.platform_tag(), cache_folder(), progress)
    return InstalledToolkit("cuda", root, release, "torchwheel's cache")


@dataclasses.dataclass(frozen=True)
class LocalTarget:
    """A build on this machine.

    Attributes:
        target: the build target.
        compilers: the exact versions of the toolkit and the host compiler.
        torch: torch's version.
    """

    target: targets.Target
    compilers: str
    torch: str


def find_local_target(
    extension: Extension,
    name: str | None,
    source: Path,
    environ: Mapping[str, str],
    progress: Progress,
    kernels_for: Gpu | None = None,
) -> LocalTarget:
    """The target for an operator on the GPUs of this machine, or on those that `environ` names.

    Without a name, the target is the whole extension. With a GPU in `kernels_for`, it is the
    operator's kernel library for that GPU.

    Raises:
        TorchwheelError: a rule of torchwheel_runtime.validate does not hold, or there is no
            compiler. The message says what to do.
    """
    torch = find_torch()
    if isinstance(torch, Absent):
        raise TorchwheelError(torch.reason)
    abi = "stable" if kernels_for else _flavour_to_build(extension, name, torch)
    backend = torch.backend or "cuda"
    needs = LibraryNeeds(abi, backend=backend)
    machine = find_machine_for_build(torch, backend, environ)
    if kernels_for:
        machine = dataclasses.replace(machine, gpus=(kernels_for,), gpus_problem=None)
    toolkit = preferred_toolkit(needs, torch, machine.toolkits)
    if toolkit is None or toolkit.problem:
        toolkit = download_toolkit(torch, environ, progress) or toolkit
    if toolkit is None or machine.host is None:
        # TORCHWHEEL_IGNORE does not help: there is no compiler. No arch is chosen yet.
        found = build_findings(needs, machine, toolkit, package=extension.package, runs_here=False)
        raise TorchwheelError(
            "; ".join([*map(str, found), *(() if toolkit else download_offer(torch))])
        )
    why = machine.gpus_problem.reason if machine.gpus_problem else None
    visible = VisibleGpus(machine.gpus, why)
    archs = choose_archs(
        ToolkitRelease(toolkit.backend, toolkit.release),
        environ,
        for_this_machine=True,
        look=lambda *_: visible,
    )
    for left_out in archs.left_out:
        progress.say(f"{archs.source}: {left_out}")
    needs = dataclasses.replace(needs, archs=archs.archs)
    runs_here = archs.source == VISIBLE or kernels_for is not None
    findings = build_findings(
        needs, machine, toolkit, package=extension.package, runs_here=runs_here
    )
    enforce(findings, environ)
    target = targets.Target(
        name=name or extension.package,
        abi=abi,
        source=source,
        toolkit=_device_compiler(toolkit, archs.archs),
        torch=targets.TorchHeaders(
            torch.folder.parent,
            extension.torch if abi == "stable" else torch.minor,
            torch.old_abi,
        ),
        platform=machine.platform,
        cross=False,
        cxx=str(machine.host.path),
        python=environment.running_python(torch.folder / "include") if extension.ordinary else None,
        part="kernels" if kernels_for else None,
        operators_off=operators_off(extension, environ),
    )
    return LocalTarget(
        target=dataclasses.replace(target, probes=find_probes(extension, target, cpu_features())),
        compilers=_compiler_versions(toolkit, machine.host),
        torch=torch.version,
    )


def _flavour_to_build(extension: Extension, name: str | None, torch: Torch) -> NativeAbi:
    """The stable flavour if torch has it, because it compiles in a second; else aten."""
    operators = extension.operators if name is None else [extension.operator(name)]
    has_stable = all("stable" in operator.bindings for operator in operators)
    stable = (
        has_stable
        and not extension.ordinary
        and version_numbers(torch.minor) >= version_numbers(extension.torch)
    )
    return "stable" if stable else "aten"


def _device_compiler(found: InstalledToolkit, archs: tuple[Arch, ...]) -> targets.DeviceCompiler:
    machine = platform.machine()
    runtime = environment.hip_runtime if found.backend == "rocm" else environment.cuda_runtime
    release = ToolkitRelease(found.backend, found.release)
    return targets.DeviceCompiler(release, found.root, archs, runtime(found.root, machine))


def _compiler_versions(toolkit: InstalledToolkit, host: HostCompiler) -> str:
    """E.g. "CUDA 13.0.88 (3f2a01bc), gcc 12.2.0".

    Two compilers of one release may differ, so the hash of all that --version prints is part of it.
    """
    compiler = toolkit.root / "bin" / ("hipcc" if toolkit.backend == "rocm" else "nvcc")
    output = program_output([str(compiler), "--version"])
    text = output.reason if isinstance(output, Absent) else output
    release, own = (
        tool_version(text) or toolkit.release,
        hashlib.sha256(text.encode()).hexdigest()[:8],
    )
    return f"{BRANDS[toolkit.backend]} {release} ({own}), {host.family} {host.version}"
