"""Where the files of a toolkit lie: NVIDIA, its wheels, conda, Debian and AMD differ."""

import platform
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from torchwheel_runtime.arch.model import Backend
from torchwheel_runtime.errors import UsageError
from torchwheel_runtime.machine.probe import is_file

HOME_VARIABLES: Mapping[Backend, str] = {"cuda": "CUDA_HOME", "rocm": "ROCM_PATH"}
"""Environment variables that name the folder of a toolkit."""
CUDA_TARGETS = {"aarch64": "sbsa-linux", "x86_64": "x86_64-linux"}
"""Where NVIDIA's toolkits keep a platform's headers and libraries, below targets/."""
CICC_PATHS = ("nvvm/bin/cicc", "lib/nvidia-cuda-toolkit/bin/cicc")
_HEADER, _RUNTIME = "cuda_runtime.h", "libcudart_static.a"


def header_folders(root: Path, machine: str, *, cross: bool = False) -> list[Path]:
    """The folders that a CUDA toolkit may have its headers in.

    Args:
        root: the toolkit's folder.
        machine: the machine that is compiled for.
        cross: whether it is not the toolkit's own.
    """
    own = () if cross else (root / "include",)
    return [*own, root / "targets" / CUDA_TARGETS.get(machine, machine) / "include"]


def library_folders(root: Path, machine: str, *, cross: bool = False) -> list[Path]:
    """The folders that it may have its libraries in."""
    own = () if cross else ("lib64", "lib", f"lib/{machine}-linux-gnu")
    targets = root / "targets" / CUDA_TARGETS.get(machine, machine) / "lib"
    return [*(root / name for name in own), targets]


def cuda_headers(root: Path, machine: str, *, cross: bool = False) -> Path:
    """The folder of a CUDA toolkit's headers: the first of `header_folders` that has them."""
    first, *others = header_folders(root, machine, cross=cross)
    return next((one for one in (first, *others) if is_file(one / _HEADER)), first)


def cuda_runtime(root: Path, machine: str, *, cross: bool = False) -> Path:
    """libcudart_static.a of a CUDA toolkit.

    Raises:
        UsageError: it has none.
    """
    places = library_folders(root, machine, cross=cross)
    return _runtime_library(_RUNTIME, places, f"CUDA_HOME={root}", "a whole CUDA toolkit")


def hip_runtime(root: Path, machine: str) -> Path:
    """libamdhip64.so of a ROCm: AMD's packages and distributions keep it in different folders."""
    places = [root / "lib", root / "lib" / f"{machine}-linux-gnu"]
    wanted = "a ROCm with its development files"
    return _runtime_library("libamdhip64.so", places, f"ROCM_PATH={root}", wanted)


def _runtime_library(name: str, places: Sequence[Path], variable: str, wanted: str) -> Path:
    """The library in the first of `places` that has it."""
    for folder in places:
        if (folder / name).exists():
            return folder / name
    raise UsageError(
        f"{variable}: no {name} in {' or '.join(map(str, places))}; point it at {wanted}"
    )


def cuda_header(root: Path, name: str) -> Path | None:
    """A header of a CUDA toolkit for this machine; None if it has none of this name."""
    return _find(name, header_folders(root, platform.machine()))


def missing_files(root: Path) -> list[str]:
    """Names of the files that a CUDA toolkit lacks and every build for this machine needs."""
    machine = platform.machine()
    headers = header_folders(root, machine)
    required = {
        _HEADER: headers,
        "crt/host_config.h": headers,
        "nv/target": [*headers, *(one / "cccl" for one in headers)],
        _RUNTIME: library_folders(root, machine),
    }
    return [name for name, places in required.items() if not _find(name, places)]


def _find(name: str, places: Iterable[Path]) -> Path | None:
    return next(filter(is_file, (folder / name for folder in places)), None)
