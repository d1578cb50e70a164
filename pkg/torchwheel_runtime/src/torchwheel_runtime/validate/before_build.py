"""Rules on the toolkit and the host compiler, and all that count before a build."""

from collections.abc import Iterable, Iterator, Mapping

from torchwheel_runtime.arch.devices import VisibleGpus
from torchwheel_runtime.arch.lists import VARIABLES, ArchSelection, choose_archs
from torchwheel_runtime.arch.model import BRANDS, Backend
from torchwheel_runtime.arch.releases import ToolkitRelease, cxx_standard
from torchwheel_runtime.builder.extension import STABLE_SINCE
from torchwheel_runtime.claims import LibraryNeeds, NativeAbi
from torchwheel_runtime.machine.facts import Absent, InstalledToolkit, Machine, Torch
from torchwheel_runtime.machine.toolkit_layout import HOME_VARIABLES
from torchwheel_runtime.machine.toolkits import COMPILERS, pip_install_command
from torchwheel_runtime.toolkit.host import HostCompiler, is_within
from torchwheel_runtime.validate import torch_rules
from torchwheel_runtime.validate.at_load import check_code, check_driver
from torchwheel_runtime.validate.findings import Finding
from torchwheel_runtime.validate.torch_rules import (
    check_backend,
    check_torch_range,
    toolkit_mismatch,
)
from torchwheel_runtime.versions import minor_version, version_numbers


def check_toolkit(
    backend: Backend, toolkit: InstalledToolkit | None, torch: Torch | None
) -> Finding | None:
    """There is a toolkit, and its parts are of one release."""
    name = BRANDS[backend]
    if toolkit is None:
        variable, program = HOME_VARIABLES[backend], COMPILERS[backend]
        nowhere = f"none (no {variable}, no {program} on the PATH, none elsewhere)"
        return Finding(
            "toolkit", expected=f"a {name} toolkit", found=nowhere, fix=_how_to_get(backend, torch)
        )
    if toolkit.problem is None:
        return None
    return Finding(
        "toolkit",
        expected=f"a {name} toolkit whose parts are of one release",
        found=f"{describe_toolkit(toolkit)}: {toolkit.problem}",
        fix=toolkit.fix or _how_to_get(backend, torch),
    )


def check_toolkit_torch(
    needs: LibraryNeeds, torch: Torch, toolkit: InstalledToolkit
) -> Finding | None:
    """The toolkit fits torch's release."""
    difference = toolkit_mismatch(needs.abi, toolkit.backend, toolkit.release, torch)
    if difference is None or not toolkit.release:
        return None
    expected, _ = difference
    return Finding(
        "toolkit-torch",
        expected=expected,
        found=describe_toolkit(toolkit),
        fix=_how_to_get(toolkit.backend, torch),
    )


def check_host_compiler(
    host: HostCompiler | None,
    problem: Absent | None,
    toolkit: InstalledToolkit,
    torch: Torch | None = None,
) -> Finding | None:
    """There is a C++ compiler, nvcc works with it, and it has the C++ of the headers of `torch`.

    hipcc brings its own.
    """
    if host is None:
        fix = "`apt-get install g++`, or set CXX to a compiler"
        return Finding(
            "host-compiler", expected="a C++ compiler", found=str(problem or "none"), fix=fix
        )
    bounds = torch_rules.host_bounds(toolkit.release) if toolkit.backend == "cuda" else {}
    standard = cxx_standard(torch.minor if torch else None)
    able = torch_rules.cxx_bounds(standard) if bounds else {}
    if not bounds or (is_within(host, bounds) and (not able or is_within(host, able))):
        return None
    newest = int(bounds["gcc"].rpartition("<")[2]) - 1
    wanted, why = bounds, f", which CUDA {toolkit.release} works with"
    if torch and is_within(host, bounds):
        wanted, why = able, f", for the C++{standard} of the headers of torch {torch.minor}"
    return Finding(
        "host-compiler",
        expected=" or ".join(f"{family} {bound}" for family, bound in wanted.items()) + why,
        found=f"{host.family} {host.version} ({host.path})",
        fix=f"`apt-get install g++-{newest}` and `export CXX=g++-{newest}`",
    )


def check_two_toolkits(toolkits: Iterable[InstalledToolkit]) -> Iterator[Finding]:
    """The variable and the PATH lead to one release; otherwise the first toolkit counts."""
    installed = list(toolkits)
    for backend, variable in HOME_VARIABLES.items():
        places = (variable, f"{COMPILERS[backend]} on the PATH")
        named = [t for t in installed if t.backend == backend and t.where in places]
        if len({toolkit.release for toolkit in named}) > 1:
            first, second = named
            yield Finding(
                "two-toolkits",
                expected=f"one {BRANDS[backend]} release in {variable} and on the PATH",
                found=f"{describe_toolkit(first)}, which is taken, and {describe_toolkit(second)}",
                fix=f"`export {variable}={second.root}`, or put {first.root}/bin first on the PATH",
                level="warning",
            )


def describe_toolkit(toolkit: InstalledToolkit) -> str:
    """E.g. "CUDA 13.0 in /usr/local/cuda-13.0 (nvcc on the PATH)"."""
    release = f" {toolkit.release}" if toolkit.release else ""
    return f"{BRANDS[toolkit.backend]}{release} in {toolkit.root} ({toolkit.where})"


def _how_to_get(backend: Backend, torch: Torch | None) -> str:
    """How to get the toolkit of torch's release. PyPI has compilers of CUDA 13 and later."""
    release = minor_version((torch.built_with(backend) if torch else None) or "")
    named = f"{BRANDS[backend]} {release}".strip()
    if backend == "cuda" and version_numbers(release) >= (13,):
        return f"{pip_install_command(release)}, or set CUDA_HOME to {named}"
    return f"install {named} with its compiler, and set {HOME_VARIABLES[backend]} to its folder"


def build_findings(
    needs: LibraryNeeds,
    machine: Machine,
    toolkit: InstalledToolkit | None,
    *,
    package: str,
    runs_here: bool = True,
) -> tuple[Finding, ...]:
    """The rules that do not hold for a build.

    Args:
        needs: those of the library; its toolkit version does not count.
        machine: the machine's facts. Without a torch (its headers may be alone), torch's rules
            do not apply.
        toolkit: the toolkit to build with, e.g. the preferred one.
        package: the distribution's name, for the advice.
        runs_here: whether the library is for this machine, so that its driver and GPUs count.
    """
    if needs.backend is None:
        raise ValueError("a build has a backend")
    torch = machine.torch
    findings = [check_toolkit(needs.backend, toolkit, torch)]
    if torch is not None:
        findings += [
            check_torch_range(needs, torch, package),
            check_backend(needs, torch, package),
        ]
        findings += [check_toolkit_torch(needs, torch, toolkit)] if toolkit else []
    if toolkit is not None:
        # The stable ABI's headers are content with any compiler that nvcc takes.
        of = None if needs.abi == "stable" else torch
        findings.append(check_host_compiler(machine.host, machine.host_problem, toolkit, of))
        if runs_here:
            fix = f"name {{}} in {VARIABLES[needs.backend]}"
            findings.append(check_driver(toolkit.backend, toolkit.release, machine.driver))
            findings += check_code(needs, toolkit.release, machine.gpus, machine.driver, fix)
    return tuple(finding for finding in findings if finding is not None)


def preferred_toolkit(
    needs: LibraryNeeds, torch: Torch | None, toolkits: Iterable[InstalledToolkit]
) -> InstalledToolkit | None:
    """The toolkit to build with.

    A toolkit that a variable names comes first, even if it has a problem. Then come complete
    toolkits that fit torch, and among them those of torch's own release, because torch's driver
    knows their PTX.
    """
    candidates = [toolkit for toolkit in toolkits if toolkit.backend == needs.backend]
    if candidates and candidates[0].where in HOME_VARIABLES.values():
        return candidates[0]
    fitting = [
        toolkit
        for toolkit in candidates
        if not toolkit.problem and not (torch and check_toolkit_torch(needs, torch, toolkit))
    ]
    release = minor_version((torch and torch.built_with(needs.backend)) or "")
    same = [toolkit for toolkit in fitting if torch and toolkit.release == release]
    return next(iter([*same, *fitting, *candidates]), None)


def flavour_for(torch: Torch, floor: str = STABLE_SINCE) -> NativeAbi:
    """The ABI flavour that is built for an extension that has both.

    The stable one compiles in a second, and torch has it from `floor` on.
    """
    return "stable" if version_numbers(torch.minor) >= version_numbers(floor) else "aten"


def archs_to_build(
    machine: Machine, toolkit: InstalledToolkit, environ: Mapping[str, str]
) -> ArchSelection:
    """The archs of a build on this machine: those that `environ` names, else its GPUs'.

    Raises:
        UsageError: there is neither a list nor a GPU, or the toolkit can compile none of the archs.
    """
    why = machine.gpus_problem.reason if machine.gpus_problem else None
    visible = VisibleGpus(machine.gpus, why)
    release = ToolkitRelease(toolkit.backend, toolkit.release)
    return choose_archs(release, environ, for_this_machine=True, look=lambda *_: visible)
