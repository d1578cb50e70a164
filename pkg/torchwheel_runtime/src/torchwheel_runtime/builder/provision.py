"""Provisions what a stable build lacks if its environment names the ABI flavour alone.

`TORCHWHEEL_ABI=stable pip install .` then compiles where there is no CUDA and no torch.
"""

from collections.abc import Mapping
from pathlib import Path

from torchwheel_runtime.arch.lists import NamedArchs, arch_list, choose_archs
from torchwheel_runtime.arch.releases import ToolkitRelease
from torchwheel_runtime.builder import variables
from torchwheel_runtime.builder.extension import Extension
from torchwheel_runtime.console import Progress
from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.machine.toolkits import locate_system, require_cuda
from torchwheel_runtime.toolkit.cache import cache_folder
from torchwheel_runtime.toolkit.headers import torch_headers
from torchwheel_runtime.toolkit.host import host_compiler
from torchwheel_runtime.toolkit.lock import locked_releases
from torchwheel_runtime.toolkit.provision import provision_pypi

_WITHOUT_GPU = NamedArchs("all-major", "no GPU here")


def complete_environment(
    environ: Mapping[str, str], extension: Extension, progress: Progress
) -> dict[str, str]:
    """`environ` with a toolkit, torch's headers, archs and a C++ compiler, as far as it has none.

    The toolkit is that of CUDA_HOME, else nvcc's on the PATH, else a pinned release from PyPI. The
    archs are those of the visible GPUs, else the first of every generation.

    Raises:
        TorchwheelError: there is no C++ compiler, or something cannot be had.
    """
    cxx = environ.get(variables.CXX) or str(host_compiler(environ).path)
    root, release = _find_toolkit(environ, progress)
    cuda = ToolkitRelease("cuda", release)
    archs = choose_archs(cuda, environ, for_this_machine=True, default=_WITHOUT_GPU)
    progress.say(f"CUDA {release} ({root}), for {arch_list(archs.archs)} ({archs.source})")
    for left_out in archs.left_out:
        progress.say(f"{archs.source}: {left_out}")
    torch = environ.get(variables.TORCH)
    torch_release = environ.get(variables.TORCH_RELEASE) or extension.torch
    found = {
        variables.CXX: cxx,
        variables.CUDA_HOME: str(root),
        variables.TOOLKIT: release,
        variables.ARCH_LIST: arch_list(archs.archs),
        variables.TORCH: torch or str(torch_headers(torch_release, cache_folder(), progress)),
        variables.TORCH_RELEASE: torch_release,
    }
    return {**environ, **found}


def _find_toolkit(environ: Mapping[str, str], progress: Progress) -> tuple[Path, str]:
    """The toolkit's folder and release."""
    asked = environ.get(variables.TOOLKIT)
    if environ.get(variables.CUDA_HOME) or not asked:
        try:
            root, _ = locate_system(progress.say, environ)
        except TorchwheelError:
            if environ.get(variables.CUDA_HOME):
                raise
        else:
            return root, require_cuda(root, asked)
    release = asked or locked_releases()[0]
    root, _ = provision_pypi(release, variables.read_platform(environ), cache_folder(), progress)
    return root, release
