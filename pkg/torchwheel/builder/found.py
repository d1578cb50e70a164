"""What a target needs and no variable says: it is looked up in the folders that variables name."""

import importlib.util
import re
import sysconfig
from pathlib import Path

from torchwheel.builder.target import Python, Sysroot
from torchwheel.errors import UsageError

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


def running_python() -> Python:
    """The CPython that runs the build, which is the one an extension module is for."""
    pybind11 = importlib.util.find_spec("pybind11")
    if pybind11 is None or pybind11.origin is None:
        raise UsageError(
            "the aten flavour is built with pybind11, which is not installed here: "
            "run `pip install pybind11`"
        )
    return Python(
        include=Path(sysconfig.get_path("include")),
        pybind11=Path(pybind11.origin).parent / "include",
        suffix=str(sysconfig.get_config_var("EXT_SUFFIX")),
    )


def hip_runtime(root: Path, machine: str) -> Path:
    """libamdhip64.so of a ROCm: AMD's packages and distributions keep it in different folders."""
    places = (root / "lib", root / "lib" / f"{machine}-linux-gnu")
    for folder in places:
        if (folder / "libamdhip64.so").exists():
            return folder / "libamdhip64.so"
    raise UsageError(
        f"ROCM_PATH={root}: no libamdhip64.so in {' or '.join(map(str, places))}; "
        "point it at a ROCm with its development files"
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
