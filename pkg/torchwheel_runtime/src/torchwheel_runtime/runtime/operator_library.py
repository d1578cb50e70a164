"""Obtains an operator's library for this machine: from the cache, else by a build.

It decides the build (toolkit, archs, torch, compilers) and asks the cache for its library. The
first call of an operator on a GPU uses this; an import does not.
"""

import dataclasses
import glob
import hashlib
import os
import platform
from collections.abc import Callable, Mapping
from pathlib import Path

from torchwheel_runtime.arch.devices import Gpu
from torchwheel_runtime.arch.lists import VISIBLE
from torchwheel_runtime.arch.model import BRANDS, Arch
from torchwheel_runtime.arch.releases import ToolkitRelease
from torchwheel_runtime.builder import variables
from torchwheel_runtime.builder.extension import SOURCES, Extension
from torchwheel_runtime.builder.ninja import build, find_ninja, parallel_jobs, read_progress
from torchwheel_runtime.builder.probes import cpu_features, find_probes
from torchwheel_runtime.builder.recipe import (
    Recipe,
    folders_of,
    own_sources_digest,
    strip_folders,
)
from torchwheel_runtime.builder.sources import hipify_sources, sources_of
from torchwheel_runtime.builder.target import DeviceCompiler, Target, TorchHeaders
from torchwheel_runtime.builder.variables import operators_off
from torchwheel_runtime.claims import LibraryNeeds, NativeAbi
from torchwheel_runtime.console import Progress, Terminal
from torchwheel_runtime.errors import TorchwheelError, UsageError
from torchwheel_runtime.files import private_folder
from torchwheel_runtime.jit.key import LibraryRequest, read_sources
from torchwheel_runtime.jit.lookup import jit_folder
from torchwheel_runtime.jit.make import make_library
from torchwheel_runtime.loadable import LoadableFile
from torchwheel_runtime.machine import probe
from torchwheel_runtime.machine.discovery import find_machine_for_build
from torchwheel_runtime.machine.facts import Absent, InstalledToolkit, Torch
from torchwheel_runtime.machine.probe import program_output
from torchwheel_runtime.machine.toolkit_layout import cuda_runtime, hip_runtime
from torchwheel_runtime.machine.torch import find_torch
from torchwheel_runtime.runtime.status import LoadStep
from torchwheel_runtime.toolkit.cache import cache_folder
from torchwheel_runtime.toolkit.host import HostCompiler
from torchwheel_runtime.validate.before_build import (
    archs_to_build,
    build_findings,
    flavour_for,
    preferred_toolkit,
)
from torchwheel_runtime.validate.findings import enforce
from torchwheel_runtime.versions import tool_version

DOWNLOAD_VARIABLE = "TORCHWHEEL_DOWNLOAD"
"""Set to 1, it allows a download of some 300 MB into the cache, pinned and hashed."""


def obtain_library(
    extension: Extension,
    package: Path,
    name: str | None,
    *,
    kernels_for: Gpu | None = None,
) -> tuple[LoadableFile, LoadStep]:
    """The library of an operator, or the module of an ordinary extension, for this machine.

    Without a name it is all of an ordinary extension. With a GPU in `kernels_for` it is the
    operator's kernel library for that GPU: a part for a front end, which knows neither torch nor
    Python. The environment names toolkits and compilers, and may name an arch list.

    Returns:
        The verified library, open, and whether it was cached or built.

    Raises:
        TorchwheelError: something is missing or does not fit; the message says what to do.
    """
    with Terminal().live_line() as progress:
        source = source_folder(extension, package)
        target, request = find_local_build(
            extension, name, source, os.environ, progress, kernels_for
        )
        step: LoadStep = "jit cache"

        # A terminal shows each file while it compiles; a log does not list them.
        def show(line: str) -> None:
            if step := read_progress(line):
                progress.step(*step)

        say: Callable[[str], None] = show if progress.is_live else _ignore_line
        say = progress.say if extension.verbose else say

        def compile_(copy: Path, output: Path) -> Path:
            nonlocal step
            step = "jit build"
            find_ninja()
            copied = dataclasses.replace(target, source=copy)
            sources = sources_of(extension, copied, name)
            translated = hipify_sources(extension, sources, copied, output / "translated")
            recipe = Recipe(extension, *translated)
            return build(recipe, output, None, parallel_jobs(os.environ), say)

        try:
            folder = jit_folder()
        except TorchwheelError as error:
            progress.say(f"{error}; what is built is for this process alone")
            folder = private_folder()
        return make_library(folder, request, compile_, progress), step


def _ignore_line(line: str) -> None:
    del line


def source_folder(extension: Extension, package: Path) -> Path:
    """The folder of the extension's sources, in the installed package or its source tree."""
    installed = package / SOURCES
    trees = (parent for parent in package.parents[:3] if (parent / "pyproject.toml").is_file())
    for folder in (installed, *(tree / extension.sources for tree in trees)):
        if folder.is_dir():
            return folder
    raise UsageError(f"{installed}: not there, so there is nothing to build from")


def find_local_build(
    extension: Extension,
    name: str | None,
    source: Path,
    environ: Mapping[str, str],
    progress: Progress,
    kernels_for: Gpu | None = None,
) -> tuple[Target, LibraryRequest]:
    """The build of an operator for the GPUs of this machine, or for those that `environ` names.

    Without a name, it is of the whole extension. With a GPU in `kernels_for`, it is of the
    operator's kernel library for that GPU.

    Returns:
        The build's target, and the request for its library.

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
            "; ".join([*(one.line for one in found), *(() if toolkit else download_offer(torch))])
        )
    archs = archs_to_build(machine, toolkit, environ)
    for left_out in archs.left_out:
        progress.say(f"{archs.source}: {left_out}")
    needs = dataclasses.replace(needs, archs=archs.archs)
    runs_here = archs.source == VISIBLE or kernels_for is not None
    findings = build_findings(
        needs, machine, toolkit, package=extension.package, runs_here=runs_here
    )
    enforce(findings, environ)
    target = Target(
        name=name or extension.package,
        abi=abi,
        source=source,
        toolkit=_device_compiler(toolkit, archs.archs),
        torch=TorchHeaders(
            torch.folder.parent,
            extension.torch if abi == "stable" else torch.minor,
            torch.old_abi,
        ),
        platform=machine.platform,
        cross=False,
        cxx=str(machine.host.path),
        python=variables.running_python(torch.folder / "include") if extension.ordinary else None,
        part="kernels" if kernels_for else None,
        operators_off=operators_off(extension, environ),
    )
    target = dataclasses.replace(target, probes=find_probes(extension, target, cpu_features()))
    compilers = _compiler_versions(toolkit, machine.host)
    return target, library_request(extension, name, target, compilers, torch.version)


def _flavour_to_build(extension: Extension, name: str | None, torch: Torch) -> NativeAbi:
    """The stable flavour if the operators have it and torch too, else aten."""
    operators = extension.operators if name is None else [extension.operator(name)]
    has_stable = all("stable" in operator.bindings for operator in operators)
    return flavour_for(torch, extension.torch) if has_stable and not extension.ordinary else "aten"


def _device_compiler(found: InstalledToolkit, archs: tuple[Arch, ...]) -> DeviceCompiler:
    machine = platform.machine()
    runtime = hip_runtime if found.backend == "rocm" else cuda_runtime
    release = ToolkitRelease(found.backend, found.release)
    return DeviceCompiler(release, found.root, archs, runtime(found.root, machine))


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


def release_to_download(torch: Torch, environ: Mapping[str, str]) -> str | None:
    """The CUDA release that a build may download and can; None if there is none."""
    return _downloadable_release(torch) if environ.get(DOWNLOAD_VARIABLE) == "1" else None


def download_toolkit(
    torch: Torch, environ: Mapping[str, str], progress: Progress
) -> InstalledToolkit | None:
    """The CUDA toolkit of torch's release; None if the download is not allowed or impossible.

    Raises:
        TorchwheelError: the download failed.
    """
    release = release_to_download(torch, environ)
    if release is None:
        return None
    from torchwheel_runtime.toolkit.provision import provision_pypi  # noqa: PLC0415 - starts pip

    root, _ = provision_pypi(release, probe.platform_tag(), cache_folder(), progress)
    return InstalledToolkit("cuda", root, release, "torchwheel's cache")


_HEADERS = {".h", ".hh", ".hpp", ".hxx", ".cuh", ".hip", ".inc", ".inl", ".ipp", ".tcc"}


def library_request(
    extension: Extension, name: str | None, target: Target, compilers: str, torch: str
) -> LibraryRequest:
    """The request for the library of a target: everything that decides its bytes.

    Without the name of an operator, it is the whole extension's. `compilers` has the exact versions
    of the toolkit and the host compiler, `torch` that of torch.
    """
    recipe = Recipe(extension, sources_of(extension, target, name), target)
    folders = {**folders_of(target), "cxx": Path(target.cxx)}
    return LibraryRequest(
        name=f"{extension.package}.{name}" if name else extension.package,
        archs=tuple(map(str, target.toolkit.archs)),
        toolkit=compilers,
        torch="any" if target.part else f"{torch} {target.abi}",
        commands=strip_folders((step.command for step in recipe.whole()), folders),
        own_sources=own_sources_digest(),
        source=target.source,
        files=read_sources(target.source, map(glob.escape, _source_files(recipe, target.source))),
    )


def _source_files(recipe: Recipe, source: Path) -> list[str]:
    """The extension's files that the recipe compiles or links, and every header."""
    compiled = {
        Path(file) for steps in recipe.groups.values() for step in steps for file in step.inputs
    } | {Path(library) for library in recipe.libraries}
    # A command names the digest of torchwheel's own file.
    own = {path for path in compiled if path.is_relative_to(source)}
    headers = {path for path in source.rglob("*") if path.suffix in _HEADERS}
    return sorted(str(path.relative_to(source)) for path in own | headers)
