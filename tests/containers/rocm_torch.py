"""A torch that says it is for ROCm, made of the installed one: no index here has a real one.

Its Python, its headers and its C++ libraries are those of the torch for CPUs. It has no kernel for
a GPU, and its libraries of HIP are empty.
"""

import importlib.metadata
import subprocess
import tempfile
import zipfile
from pathlib import Path

_HIP = """
__version__ = {version!r}
hip = {hip!r}
"""
_NO_GPU = """

import ctypes
from pathlib import Path

for _library in {libraries}:
    ctypes.CDLL(str(Path(__file__).parents[1] / "lib" / _library))


def _is_compiled() -> bool:
    return True


def is_available() -> bool:
    return False


def device_count() -> int:
    return 0
"""
_LIBRARIES = ("libc10_hip.so", "libtorch_hip.so")


def make(folder: Path, rocm: str) -> Path:
    """Write the wheel for a release of ROCm, e.g. "7.2", into a folder; takes some 10 s."""
    found = importlib.metadata.distribution("torch")
    public = found.version.partition("+")[0]
    version = f"{public}+rocm{rocm}"
    about = found.read_text("WHEEL") or ""
    tags = next(line[5:] for line in about.splitlines() if line.startswith("Tag: "))
    wheel = folder / f"torch-{version}-{tags}.whl"
    info = f"torch-{version}.dist-info"
    added = {
        "torch/version.py": _HIP.format(version=version, hip=f"{rocm}.0"),
        "torch/cuda/__init__.py": _NO_GPU.format(libraries=_LIBRARIES),
    }
    metadata = (found.read_text("METADATA") or "").replace(
        f"Version: {found.version}\n", f"Version: {version}\n", 1
    )
    with zipfile.ZipFile(wheel, "w") as archive:
        names = []
        for path in found.files or ():
            name = str(path)
            if not name.startswith(("torch/", "torchgen/", "functorch/")) or name.endswith(".pyc"):
                continue
            names.append(name)
            if name in added:
                archive.writestr(name, Path(path.locate()).read_text() + added[name])
            else:
                archive.write(path.locate(), name)
        with tempfile.TemporaryDirectory() as made:
            for library in _LIBRARIES:
                names.append(f"torch/lib/{library}")
                archive.write(_empty_library(Path(made, library)), names[-1])
        for name, text in (("METADATA", metadata), ("WHEEL", about)):
            names.append(f"{info}/{name}")
            archive.writestr(names[-1], text)
        record = f"{info}/RECORD"
        archive.writestr(record, "".join(f"{name},,\n" for name in [*names, record]))
    return wheel


def _empty_library(path: Path) -> Path:
    command = ["gcc", "-shared", "-nostdlib", "-x", "c", "/dev/null", "-o", path]
    subprocess.run([*command, f"-Wl,-soname,{path.name}"], check=True)
    return path
