"""What an sdist's build needs before it starts: torch, a toolkit, requirements, variables."""

import os
import platform
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import cast

import ninja

from torchwheel.matrix.sections import ArchsBy, HostCompilerBounds, Toolkit, WheelPlatform
from torchwheel.matrix.variants import Variant, python_tag
from torchwheel.pipeline.inputs import own_build_variables
from torchwheel.sdist.project_settings import ProjectSettings
from torchwheel.sdist.request import SdistRequest
from torchwheel.smoke import trial_environment
from torchwheel.smoke.testing import EnvironmentTorch
from torchwheel.smoke.trial_environment import Environment
from torchwheel_runtime.arch.lists import NamedArchs, arch_list, choose_archs
from torchwheel_runtime.arch.releases import ToolkitRelease, cxx_standard, torch_releases
from torchwheel_runtime.errors import UsageError
from torchwheel_runtime.pip import pip_install
from torchwheel_runtime.toolkit.host import HostCompiler, check_bounds, host_compiler
from torchwheel_runtime.toolkit.lock import locked_releases
from torchwheel_runtime.validate.torch_rules import (
    cxx_bounds,
    describe_torch,
    host_bounds,
    toolkit_mismatch,
)
from torchwheel_runtime.versions import minor_version, version_numbers

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
# The matrix knows fewer platforms; any Linux can build for itself.
PLATFORM = cast("WheelPlatform", f"linux_{platform.machine()}")


def sdist_variant(torch: EnvironmentTorch, toolkit: Toolkit | None) -> Variant:
    """The variant of a wheel that is compiled with `torch`; without a toolkit, for CPUs.

    E.g. "cu130-torch2.11-cp311", with the local version "cu130torch2.11".
    """
    minor, tag = torch.minor, python_tag(PYTHON)
    name = toolkit.name if toolkit else "cpu"
    return Variant(
        id=f"{name}-torch{minor}-{tag}",
        abi="aten",
        toolkit=toolkit,
        torch_release=minor,
        python_tag=tag,
        platform=PLATFORM,
    )


def newest_torch() -> str:
    """The newest known release of torch for the running Python, e.g. "2.15.0"."""
    minors = [minor for minor, torch in torch_releases().items() if PYTHON in torch.pythons]
    if not minors:
        raise UsageError(f"no torch is known for Python {PYTHON}; name one: --torch RELEASE")
    return f"{max(minors, key=version_numbers)}.0"


def toolkit_for(
    torch: EnvironmentTorch,
    version: str | None,
    archs: str | None,
    own: ProjectSettings,
    say: Callable[[str], None],
    environ: Mapping[str, str] = os.environ,
    *,
    archs_by: ArchsBy | None = None,
) -> Toolkit:
    """The toolkit to build with, and the archs that it compiles for.

    Args:
        torch: the torch that is built for.
        version: a CUDA release, e.g. "13.0"; None for the one that torch was built with.
        archs: an arch list; None for TORCH_CUDA_ARCH_LIST, else those that the project names,
            else the archs of torch's own machine code, so that the wheel runs on the same GPUs.
        own: what the project says.
        say: is called with each arch that is left out.
        environ: the variables of this process.
        archs_by: who decides on the archs; None for what the project's files tell.

    Raises:
        UsageError: nothing is left to compile for, or torch and the toolkit do not fit.
    """
    if torch.cuda is None:
        raise UsageError(
            f"{describe_torch(torch)}: "
            "name a torch for CUDA (--torch), or build without CUDA (--cpu)"
        )
    version = version or minor_version(torch.cuda)
    if problem := toolkit_mismatch("aten", "cuda", version, torch):
        raise UsageError(f"--toolkit {version}: expected {problem[0]}")
    release = ToolkitRelease("cuda", version)
    choice = choose_archs(
        release,
        environ,
        argument=NamedArchs(archs, "--archs") if archs else None,
        default=own.archs(release)[0]
        or NamedArchs(arch_list(torch.machine_code), "torch's own archs"),
    )
    compiled, left_out = list(choice.archs), list(choice.left_out)
    facts = torch_releases().get(torch.minor)
    by_cmake = own.script is not None and own.script.cmake
    if facts and (archs_by or own.archs(release)[1]) == "environment" and not by_cmake:
        compiled = [arch for arch in compiled if facts.takes(arch)]
        why = f"the BuildExtension of torch {torch.minor} refuses it; see --archs-by declared"
        left_out += [f"{arch}: {why}" for arch in choice.archs if arch not in compiled]
    if not compiled:
        reasons = "; ".join(left_out)
        raise UsageError(f"{choice.source}: nothing to compile for: {reasons}")
    for line in left_out:
        say(f"left out: {line}")
    return Toolkit(
        name=release.name,
        backend="cuda",
        version=version,
        abis=("aten",),
        archs=tuple(compiled),
        source="pypi" if version in locked_releases() else "system",
        # An unknown release has no bounds: nvcc itself accepts or refuses the compiler.
        host_compiler=HostCompilerBounds(**(host_bounds(version) or {"gcc": "", "clang": ""})),
    )


def share_torch(base: Path, folder: Path, env: Environment) -> None:
    """Have `env` find the torch of the base in `folder`, whose path names no Python.

    The paths of torch's headers get into objects (__FILE__). With equal paths all Pythons of a
    torch have equal objects of the sources without Python.h, and a compiler cache has them once.
    pip sees no distribution there. It finds all of them in the base, which is not its to change.
    """
    folder.mkdir()
    (folder / "torch").symlink_to(trial_environment.site_of(base) / "torch")
    # In the order of their names, so this comes before base.pth.
    (env.site / "above-base.pth").write_text(f"{folder}\n", encoding="utf-8")


CPU_INDEX = "https://download.pytorch.org/whl/cpu"
"""PyTorch's own index of CPU torches; PyPI's torch is for CUDA, with 5 GB of its libraries."""


def torch_requirement(request: SdistRequest) -> tuple[str, tuple[str, ...]]:
    """The requirement on torch, and pip's options to find it: without CUDA it is a CPU torch."""
    release = request.torch or newest_torch()
    if request.cpu and "+" not in release:
        return f"torch=={release}+cpu", (f"--extra-index-url={CPU_INDEX}",)
    return f"torch=={release}", ()


def host_for(request: SdistRequest) -> HostCompiler:
    """The C++ compiler, which has the C++ of torch's headers: asked before torch is downloaded."""
    host, minor = host_compiler(), minor_version(request.torch or newest_torch())
    standard = cxx_standard(minor)
    if able := cxx_bounds(standard):
        check_bounds(host, able, f"torch {minor}, whose headers are C++{standard},")
    return host


def install_beside_torch(
    env: Environment,
    torch: EnvironmentTorch,
    folder: Path,
    packages: Iterable[str | Path],
    what: str,
) -> None:
    """Install requirements or wheels, called `what` in an error; torch stays at its release.

    pip's constraints are written to `folder`.
    """
    constraints = folder / "constraints.txt"
    constraints.write_text(f"torch=={torch.release}\n", encoding="utf-8")
    pip_install(
        env.python,
        packages,
        options=("--constraint", str(constraints)),
        offline=False,
        doing=f"cannot install {what} beside torch {torch.version}",
    )


def sdist_environment(
    env: Environment,
    *,
    toolkit: Toolkit | None,
    cuda_home: Path | None,
    host: HostCompiler,
    cxx: Path,
    jobs: int,
    environ: Mapping[str, str] = os.environ,
) -> dict[str, str]:
    """The variables that configure setup.py; they are added to those of this process.

    Args:
        env: the environment that runs setup.py.
        toolkit: the toolkit; None for a build without CUDA.
        cuda_home: its folder.
        host: nvcc's C++ compiler.
        cxx: the C++ compiler of the build: the same, or a script that adds a launcher.
        jobs: compilers that may run side by side.
        environ: the variables of this process.
    """
    force_cuda = environ.get("FORCE_CUDA") or "1"
    cuda_bin = [str(cuda_home / "bin")] if cuda_home else []
    return {
        # The build must not see torchwheel's own environment, but for its ninja if no other exists.
        "PYTHONPATH": "",
        "PYTHONHOME": "",
        "PYTHONNOUSERSITE": "1",
        "VIRTUAL_ENV": str(env.python.parent.parent),
        "PATH": os.pathsep.join([*cuda_bin, environ.get("PATH", os.defpath), ninja.BIN_DIR]),
        **own_build_variables(toolkit, cuda_home, cxx, jobs, force_cuda),
        **({"NVCC_CCBIN": str(host.path)} if toolkit else {}),
    }
