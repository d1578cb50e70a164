"""What setup.py is told about a variant, wherever it runs."""

import dataclasses

from torchwheel.builder import environment
from torchwheel.matrix.variants import Variant


@dataclasses.dataclass(frozen=True)
class BuildPaths:
    """Where a build finds its toolkit, torch's headers and its folders."""

    toolkit: str
    torch: str
    build: str
    shared: str
    cxx: str | None = None
    sysroot: str | None = None


def build_environment(
    variant: Variant, places: BuildPaths | None, launcher: str = ""
) -> dict[str, str]:
    """The environment of setup.py (see builder/environment.py); a pure variant needs no places."""
    toolkit = variant.toolkit
    if toolkit is None or variant.torch_release is None or places is None:
        return {environment.ABI: variant.abi}
    rocm = toolkit.backend == "rocm"
    optional = {
        environment.CXX: places.cxx,
        environment.SYSROOT: places.sysroot,
        environment.LAUNCHER: launcher,
    }
    return {
        environment.ABI: variant.abi,
        environment.BACKEND: toolkit.backend,
        environment.NAME: variant.id,
        environment.TOOLKIT: toolkit.version,
        (environment.ROCM_PATH if rocm else environment.CUDA_HOME): places.toolkit,
        (environment.ROCM_ARCH if rocm else environment.ARCH_LIST): ";".join(toolkit.archs),
        environment.TORCH: places.torch,
        environment.TORCH_RELEASE: variant.torch_release,
        environment.PLATFORM: variant.platform,
        environment.BUILD_FOLDER: places.build,
        environment.SHARED_FOLDER: places.shared,
        **{name: value for name, value in optional.items() if value},
    }
