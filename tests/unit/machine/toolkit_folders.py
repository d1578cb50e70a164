"""Folders laid out as CUDA toolkits are, with scripts that print what the tools print."""

import platform
from pathlib import Path

from programmaker import program
from torchwheel_runtime.machine.toolkit_layout import CUDA_TARGETS

FILES = (
    "include/cuda_runtime.h",
    "include/cuda_runtime_api.h",
    "include/crt/host_config.h",
    "include/cccl/nv/target",
    "lib64/libcudart_static.a",
)


def told(release: str) -> str:
    short = release.rpartition(".")[0]
    return f"Cuda compilation tools, release {short}, V{release}"


def cuda(root: Path, nvcc: str = "13.0.88", ptxas: str | None = None, nvvm: str | None = None):
    """A toolkit; its other parts are of nvcc's release unless said."""
    for tool, release in (("nvcc", nvcc), ("ptxas", ptxas or nvcc)):
        program(root / "bin" / tool, f"echo '{told(release)}'")
    write_last = f"for out; do :; done; echo '// {told(nvvm or nvcc)}' > \"$out\""
    program(root / "nvvm/bin/cicc", write_last)
    (root / "bin/nvcc.profile").touch()
    for name in FILES:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    numbers = list(map(int, nvcc.split(".")))
    version = f"#define CUDART_VERSION  {1000 * numbers[0] + 10 * numbers[1]}\n"
    (root / "include/cuda_runtime_api.h").write_text(version)
    return root


def conda(root: Path, **releases: str) -> Path:
    """A toolkit as conda lays it out, in a prefix that has headers of others."""
    cuda(root, **releases)
    own = root / "targets" / CUDA_TARGETS[platform.machine()]
    own.mkdir(parents=True)
    (root / "include").rename(own / "include")
    (root / "lib64").rename(own / "lib")
    (root / "include").mkdir()
    (root / "include" / "zlib.h").touch()
    return root


def wheels(site: Path, crt: str = "13.0.88", **releases: str) -> Path:
    """A toolkit as pip lays it out."""
    (site / f"nvidia_cuda_crt-{crt}.dist-info").mkdir(parents=True)
    return cuda(site / "nvidia" / "cu13", **releases)
