"""Rules about the toolkit and the host compiler of a build."""

from collections.abc import Iterable, Iterator, Mapping

from torchwheel_runtime.arch.model import BRANDS, Backend
from torchwheel_runtime.claims import LibraryNeeds
from torchwheel_runtime.machine.facts import Absent, InstalledToolkit, Torch
from torchwheel_runtime.machine.toolkits import pip_install_command
from torchwheel_runtime.toolkit.host import HostCompiler, is_within
from torchwheel_runtime.validate import torch_rules
from torchwheel_runtime.validate.findings import Finding
from torchwheel_runtime.validate.torch_rules import toolkit_mismatch
from torchwheel_runtime.versions import minor_version, version_numbers

_VARIABLES: Mapping[Backend, str] = {"cuda": "CUDA_HOME", "rocm": "ROCM_PATH"}
_COMPILERS = {"cuda": "nvcc on the PATH", "rocm": "hipcc on the PATH"}


def check_toolkit(
    backend: Backend, toolkit: InstalledToolkit | None, torch: Torch | None
) -> Finding | None:
    """There is a toolkit, and its parts are of one release."""
    name = BRANDS[backend]
    if toolkit is None:
        nowhere = f"none (no {_VARIABLES[backend]}, no {_COMPILERS[backend]}, none elsewhere)"
        return Finding("toolkit", f"a {name} toolkit", nowhere, _how_to_get(backend, torch))
    if toolkit.problem is None:
        return None
    return Finding(
        "toolkit",
        f"a {name} toolkit whose parts are of one release",
        f"{describe_toolkit(toolkit)}: {toolkit.problem}",
        toolkit.fix or _how_to_get(backend, torch),
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
        "toolkit-torch", expected, describe_toolkit(toolkit), _how_to_get(toolkit.backend, torch)
    )


def check_host_compiler(
    host: HostCompiler | None, problem: Absent | None, toolkit: InstalledToolkit
) -> Finding | None:
    """There is a C++ compiler, and nvcc works with it; hipcc brings its own."""
    if host is None:
        fix = "`apt-get install g++`, or set CXX to a compiler"
        return Finding("host-compiler", "a C++ compiler", str(problem or "none"), fix)
    bounds = torch_rules.host_bounds(toolkit.release) if toolkit.backend == "cuda" else {}
    if not bounds or is_within(host, bounds):
        return None
    newest = int(bounds["gcc"].rpartition("<")[2]) - 1
    return Finding(
        "host-compiler",
        " or ".join(f"{family} {bound}" for family, bound in bounds.items())
        + f", which CUDA {toolkit.release} works with",
        f"{host.family} {host.version} ({host.path})",
        f"`apt-get install g++-{newest}` and `export CXX=g++-{newest}`",
    )


def check_two_toolkits(toolkits: Iterable[InstalledToolkit]) -> Iterator[Finding]:
    """The variable and the PATH lead to one release; otherwise the first toolkit counts."""
    installed = list(toolkits)
    for backend, variable in _VARIABLES.items():
        places = (variable, _COMPILERS[backend])
        named = [t for t in installed if t.backend == backend and t.where in places]
        if len({toolkit.release for toolkit in named}) > 1:
            first, second = named
            yield Finding(
                "two-toolkits",
                f"one {BRANDS[backend]} release in {variable} and on the PATH",
                f"{describe_toolkit(first)}, which is taken, and {describe_toolkit(second)}",
                f"`export {variable}={second.root}`, or put {first.root}/bin first on the PATH",
                blocks=False,
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
    return f"install {named} with its compiler, and set {_VARIABLES[backend]} to its folder"
