"""Looks up files of a target that no variable names, in the folders that variables name."""

import importlib.util
import re
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from torchwheel_runtime.builder.target import Python, Sysroot
from torchwheel_runtime.errors import UsageError

CUDA_TARGETS = {"aarch64": "sbsa-linux", "x86_64": "x86_64-linux"}
"""Where NVIDIA's toolkits keep a platform's headers and libraries, below targets/."""

_CONFIG = Path("torch", "share", "cmake", "Torch", "TorchConfig.cmake")


def has_old_abi(torch: Path) -> bool:
    """Whether the torch in this folder was built with libstdc++'s old strings, as 2.6 was.

    Its own CMake file says so; a torch that is silent there has the compiler's default.
    """
    try:
        text = (torch / _CONFIG).read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"{torch / _CONFIG}: {error.strerror}; it says with which C++ ABI torch was built"
        ) from error
    return bool(re.search(r"^[^#\n]*-D_GLIBCXX_USE_CXX11_ABI=0\b", text, re.MULTILINE))


def running_python(pybind11: Path | None = None) -> Python:
    """The CPython that runs the build, which is the one an extension module is for.

    Args:
        pybind11: an include folder that has it; the installed package's if none is given.
    """
    if pybind11 is None:
        spec = importlib.util.find_spec("pybind11")
        if spec is None or spec.origin is None:
            raise UsageError(
                "the aten flavour is built with pybind11, which is not installed here: "
                "run `pip install pybind11`"
            )
        pybind11 = Path(spec.origin).parent / "include"
    return Python(
        include=python_include(),
        pybind11=pybind11,
        suffix=str(sysconfig.get_config_var("EXT_SUFFIX")),
    )


def python_include() -> Path:
    """The folder of Python.h of the CPython that runs the build."""
    return Path(sysconfig.get_path("include"))


def cuda_runtime(root: Path, machine: str, *, cross: bool = False) -> Path:
    """libcudart_static.a of a CUDA toolkit; installers, wheels, Debian each keep it elsewhere."""
    own: tuple[str, ...] = () if cross else ("lib64", "lib", f"lib/{machine}-linux-gnu")
    places = [root / name for name in (*own, f"targets/{CUDA_TARGETS[machine]}/lib")]
    return _runtime("libcudart_static.a", places, f"CUDA_HOME={root}", "a whole CUDA toolkit")


def hip_runtime(root: Path, machine: str) -> Path:
    """libamdhip64.so of a ROCm: AMD's packages and distributions keep it in different folders."""
    places = [root / "lib", root / "lib" / f"{machine}-linux-gnu"]
    wanted = "a ROCm with its development files"
    return _runtime("libamdhip64.so", places, f"ROCM_PATH={root}", wanted)


def _runtime(name: str, places: Sequence[Path], variable: str, wanted: str) -> Path:
    for folder in places:
        if (folder / name).exists():
            return folder / name
    raise UsageError(
        f"{variable}: no {name} in {' or '.join(map(str, places))}; point it at {wanted}"
    )


def sysroot(root: Path, machine: str) -> Sysroot:
    """The older system in `root`, which has one gcc of its own."""
    pattern = f"usr/lib/gcc/{machine}-*/*"
    found = [path.parent for path in root.glob(f"{pattern}/libstdc++.a")]
    if len(found) != 1:
        raise UsageError(
            f"TORCHWHEEL_SYSROOT={root}: {pattern} with libstdc++.a expected once, "
            f"found {len(found)} times"
        )
    return Sysroot(root, found[0])
