"""Rules about the toolkit and the host compiler of a build."""

from collections.abc import Iterable, Iterator, Mapping

from packaging.specifiers import SpecifierSet

from torchwheel.arch.model import BRANDS, Backend
from torchwheel.claims import LibraryNeeds
from torchwheel.machine.facts import Absent, InstalledToolkit, Torch
from torchwheel.machine.toolkits import pip_install_command
from torchwheel.toolkit.host import HostCompiler
from torchwheel.validate import torch_rules
from torchwheel.validate.findings import Finding
from torchwheel.validate.torch_rules import mismatch
from torchwheel.versions import minor_version, version_numbers

_VARIABLES: Mapping[Backend, str] = {"cuda": "CUDA_HOME", "rocm": "ROCM_PATH"}
_COMPILERS = {"cuda": "nvcc on the PATH", "rocm": "hipcc on the PATH"}


def toolkit(
    backend: Backend, found: InstalledToolkit | None, torch: Torch | None
) -> Finding | None:
    """There is a toolkit, and its parts are of one release."""
    name = BRANDS[backend]
    if found is None:
        nowhere = f"none (no {_VARIABLES[backend]}, no {_COMPILERS[backend]}, none elsewhere)"
        return Finding("toolkit", f"a {name} toolkit", nowhere, _get(backend, torch))
    if found.problem is None:
        return None
    return Finding(
        "toolkit",
        f"a {name} toolkit whose parts are of one release",
        f"{described(found)}: {found.problem}",
        found.fix or _get(backend, torch),
    )


def with_torch(needs: LibraryNeeds, torch: Torch, found: InstalledToolkit) -> Finding | None:
    """The toolkit goes with torch's release."""
    told = mismatch(needs.abi, found.backend, found.release, torch)
    if told is None or not found.release:
        return None
    expected, _ = told
    return Finding("toolkit-torch", expected, described(found), _get(found.backend, torch))


def host_compiler(
    host: HostCompiler | None, problem: Absent | None, found: InstalledToolkit
) -> Finding | None:
    """There is a C++ compiler, and nvcc works with it; hipcc brings its own."""
    if host is None:
        fix = "`apt-get install g++`, or set CXX to a compiler"
        return Finding("host-compiler", "a C++ compiler", str(problem or "none"), fix)
    bounds = torch_rules.host_bounds(found.release) if found.backend == "cuda" else {}
    if not bounds or host.version in SpecifierSet(bounds.get(host.family, "<0")):
        return None
    newest = int(bounds["gcc"].rpartition("<")[2]) - 1
    return Finding(
        "host-compiler",
        " or ".join(f"{family} {bound}" for family, bound in bounds.items())
        + f", which CUDA {found.release} works with",
        f"{host.family} {host.version} ({host.path})",
        f"`apt-get install g++-{newest}` and `export CXX=g++-{newest}`",
    )


def two_toolkits(toolkits: Iterable[InstalledToolkit]) -> Iterator[Finding]:
    """The variable and the PATH lead to one release; else the first is taken."""
    every = list(toolkits)
    for backend, variable in _VARIABLES.items():
        told = (variable, _COMPILERS[backend])
        named = [one for one in every if one.backend == backend and one.where in told]
        if len({one.release for one in named}) > 1:
            first, second = named
            yield Finding(
                "two-toolkits",
                f"one {BRANDS[backend]} release in {variable} and on the PATH",
                f"{described(first)}, which is taken, and {described(second)}",
                f"`export {variable}={second.root}`, or put {first.root}/bin first on the PATH",
                blocks=False,
            )


def described(found: InstalledToolkit) -> str:
    """E.g. "CUDA 13.0 in /usr/local/cuda-13.0 (nvcc on the PATH)"."""
    release = f" {found.release}" if found.release else ""
    return f"{BRANDS[found.backend]}{release} in {found.root} ({found.where})"


def _get(backend: Backend, torch: Torch | None) -> str:
    """How to come by the toolkit of torch's release. PyPI has compilers of CUDA 13 and later."""
    told = torch.built_with(backend) if torch else None
    release = minor_version(told or "")
    named = f"{BRANDS[backend]} {release}".strip()
    if backend == "cuda" and version_numbers(release) >= (13,):
        return f"{pip_install_command(release)}, or set CUDA_HOME to {named}"
    return f"install {named} with its compiler, and set {_VARIABLES[backend]} to its folder"
