"""What a library that is built here is built with and for."""

import dataclasses
import hashlib
import platform
from collections.abc import Mapping
from pathlib import Path

from torchwheel.arch.backend import BRANDS
from torchwheel.arch.devices import Visible
from torchwheel.arch.model import Arch
from torchwheel.arch.table import Compiler
from torchwheel.arch.wanted import VISIBLE, wanted
from torchwheel.builder import found as looked_up
from torchwheel.builder import target as targets
from torchwheel.builder.extension import Extension
from torchwheel.claims import Claims
from torchwheel.console import Progress
from torchwheel.errors import TorchwheelError
from torchwheel.machine.model import FoundToolkit
from torchwheel.machine.tool import ask
from torchwheel.machine.torch_facts import find_torch
from torchwheel.machine.torch_model import Absent, Torch
from torchwheel.machine.versions import numbers, of_tool
from torchwheel.machine.whole import for_builds
from torchwheel.runtime.download import offer, toolkit_of
from torchwheel.toolkit.host import HostCompiler
from torchwheel.validate.before_build import build_findings, chosen
from torchwheel.validate.override import enforce


@dataclasses.dataclass(frozen=True)
class Here:
    """A build on this machine.

    Attributes:
        target: what it is with and for.
        compilers: the toolkit and the host compiler, as exactly as they say it.
        torch: torch's version.
    """

    target: targets.Target
    compilers: str
    torch: str


def here(
    extension: Extension,
    name: str | None,
    source: Path,
    environ: Mapping[str, str],
    progress: Progress,
) -> Here:
    """The build of an operator for the GPUs of this machine, or for those that `environ` names.

    Without a name it is the build of the whole extension.

    Raises:
        TorchwheelError: a rule of torchwheel.validate does not hold, or nothing is there to build
            with; what to do is said.
    """
    torch = find_torch()
    if isinstance(torch, Absent):
        raise TorchwheelError(torch.reason)
    abi, backend = _abi(extension, name, torch), torch.backend or "cuda"
    claims = Claims("jit", abi, "", backend)
    machine = for_builds(torch, backend, environ)
    toolkit = chosen(claims, torch, machine.toolkits)
    if toolkit is None or toolkit.problem:
        toolkit = toolkit_of(torch, environ, progress) or toolkit
    if toolkit is None or machine.host is None:
        # Nothing to let pass: there is nothing to build with.
        found = build_findings(claims, machine, toolkit, package=extension.package)
        raise TorchwheelError("; ".join([*map(str, found), *(() if toolkit else offer(torch))]))
    seen = Visible(machine.gpus, machine.gpus_problem)
    archs = wanted(
        Compiler(toolkit.backend, toolkit.release),
        environ,
        for_this_machine=True,
        look=lambda *_: seen,
    )
    for left_out in archs.left_out:
        progress.say(f"{archs.source}: {left_out}")
    claims = dataclasses.replace(claims, archs=tuple(map(str, archs.archs)))
    runs_here = archs.source == VISIBLE
    findings = build_findings(
        claims, machine, toolkit, package=extension.package, runs_here=runs_here
    )
    enforce(findings, environ)
    return Here(
        target=targets.Target(
            name=name or extension.package,
            abi=abi,
            source=source,
            toolkit=_toolkit(toolkit, archs.archs),
            torch=targets.Torch(
                torch.folder.parent,
                extension.torch if abi == "stable" else torch.minor,
                torch.old_abi,
            ),
            platform=machine.platform,
            cross=False,
            cxx=str(machine.host.path),
            python=looked_up.running_python(torch.folder / "include")
            if extension.ordinary
            else None,
        ),
        compilers=_compilers(toolkit, machine.host),
        torch=torch.version,
    )


def _abi(extension: Extension, name: str | None, torch: Torch) -> targets.Abi:
    """The stable flavour where torch has it: it is the one that is compiled in a second."""
    operators = extension.operators if name is None else [extension.operator(name)]
    has_it = all("stable" in operator.bindings for operator in operators)
    stable = has_it and not extension.ordinary and numbers(torch.minor) >= numbers(extension.torch)
    return "stable" if stable else "aten"


def _toolkit(found: FoundToolkit, archs: tuple[Arch, ...]) -> targets.Toolkit:
    machine = platform.machine()
    runtime = looked_up.hip_runtime if found.backend == "rocm" else looked_up.cuda_runtime
    return targets.Toolkit(
        found.backend, found.root, found.release, archs, runtime(found.root, machine)
    )


def _compilers(toolkit: FoundToolkit, host: HostCompiler) -> str:
    """E.g. "CUDA 13.0.88 (3f2a01bc), gcc 12.2.0".

    Two compilers of one release may differ, so the whole of what one prints of itself counts.
    """
    compiler = toolkit.root / "bin" / ("hipcc" if toolkit.backend == "rocm" else "nvcc")
    said = ask([str(compiler), "--version"])
    text = said.reason if isinstance(said, Absent) else said
    release, own = of_tool(text) or toolkit.release, hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{BRANDS[toolkit.backend]} {release} ({own}), {host.family} {host.version}"
