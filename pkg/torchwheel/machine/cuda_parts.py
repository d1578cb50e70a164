"""What a CUDA toolkit is made of, asked of its parts: are they one compiler?

Mixed by hand, of wheels: nvcc, ptxas, cicc (nvvm) and crt of two minor releases compile nothing,
whichever is the newer. A runtime of another minor does no harm, so only its being there counts.
"""

import dataclasses
import tempfile
from pathlib import Path

from torchwheel.machine.tool import ask, is_file, text_of
from torchwheel.machine.torch_model import Absent
from torchwheel.machine.versions import minor, numbers, of_tool

# Where NVIDIA's installers, its wheels, conda and Debian put them, below the toolkit's root.
_CICC = ("nvvm/bin/cicc", "lib/nvidia-cuda-toolkit/bin/cicc")
_NEEDED = {
    "cuda_runtime.h": ("include", "targets/*/include"),
    "crt/host_config.h": ("include", "targets/*/include"),
    "nv/target": ("include", "include/cccl", "targets/*/include", "targets/*/include/cccl"),
    "libcudart_static.a": ("lib64", "lib", "targets/*/lib", "lib/*-linux-gnu"),
}
# The wheel that brings each of them, and how many numbers of nvcc's release its own has.
_WHEELS = {
    "ptxas": ("nvidia-cuda-nvcc", 3),
    "nvvm": ("nvidia-nvvm", 3),
    "crt": ("nvidia-cuda-crt", 3),
    "crt/host_config.h": ("nvidia-cuda-crt", 3),
    "cuda_runtime.h": ("nvidia-cuda-runtime", 2),
    "libcudart_static.a": ("nvidia-cuda-runtime", 2),
    "nv/target": ("nvidia-cuda-cccl", 1),
}


@dataclasses.dataclass(frozen=True)
class Parts:
    """A toolkit's release, e.g. "13.0", empty where nvcc tells none; and what is wrong with it."""

    release: str
    problem: str | None = None
    fix: str | None = None


def parts(root: Path) -> Parts:
    """Start nvcc, ptxas and cicc, each once: 0.1 s."""
    nvcc = _told(root / "bin" / "nvcc")
    if isinstance(nvcc, Absent):
        return Parts("", nvcc.reason, "set CUDA_HOME to a whole CUDA toolkit")
    releases = {"ptxas": _told(root / "bin" / "ptxas"), "nvvm": _nvvm(root), **_crt(root)}
    for name, found in releases.items():
        if isinstance(found, Absent):
            return Parts(minor(nvcc), found.reason, _fix(root, nvcc, name))
    others = {name: found for name, found in releases.items() if isinstance(found, str)}
    if odd := [name for name, found in others.items() if minor(found) != minor(nvcc)]:
        named = ", ".join(f"{name} {found}" for name, found in {"nvcc": nvcc, **others}.items())
        return Parts(minor(nvcc), f"a mixed toolkit: {named}", _fix(root, nvcc, *odd))
    if missing := [name for name, places in _NEEDED.items() if not _is_there(root, name, places)]:
        return Parts(minor(nvcc), f"it has no {', '.join(missing)}", _fix(root, nvcc, *missing))
    return Parts(minor(nvcc))


def _told(tool: Path) -> str | Absent:
    """The release that a tool prints of itself, e.g. "13.0.88"."""
    if not is_file(tool):
        return Absent(f"it has no {tool.parent.name}/{tool.name}")
    said = ask([str(tool), "--version"])
    return said if isinstance(said, Absent) else _named(tool.name, said)


def _nvvm(root: Path) -> str | Absent:
    """The release of cicc, which prints none: it writes it into the PTX it makes."""
    cicc = next((root / place for place in _CICC if is_file(root / place)), None)
    if cicc is None:
        return Absent(f"it has no {_CICC[0]}")
    try:
        with tempfile.TemporaryDirectory() as folder:
            source, made = Path(folder, "empty.ii"), Path(folder, "empty.ptx")
            source.touch()
            # Every release from 11.8 to 13.5 compiles for 7.5.
            said = ask([str(cicc), "-arch", "compute_75", str(source), "-o", str(made)])
            text = text_of(made)
    except OSError as error:
        return Absent(f"cicc was not tried, for want of a temporary folder: {error.strerror}")
    if isinstance(said, Absent):
        return said
    return Absent("cicc makes no PTX") if isinstance(text, Absent) else _named("cicc", text)


def _named(tool: str, text: str) -> str | Absent:
    return of_tool(text) or Absent(f"{tool} names no release of CUDA")


def _crt(root: Path) -> dict[str, str]:
    """The release of crt, which is headers that tell none: its wheel does, if it came as one."""
    prefix = "nvidia_cuda_crt-"
    found = root.parent.parent.glob(f"{prefix}*.dist-info") if _is_of_wheels(root) else ()
    names = [path.name.removeprefix(prefix).removesuffix(".dist-info") for path in found]
    return {"crt": names[0]} if names else {}


def _is_of_wheels(root: Path) -> bool:
    """Whether pip installed it: site-packages/nvidia/cu13."""
    return root.parent.name == "nvidia"


def _is_there(root: Path, name: str, places: tuple[str, ...]) -> bool:
    return any(is_file(folder / name) for place in places for folder in root.glob(place))


def pip_command(release: str, *names: str) -> str:
    """The command that installs a CUDA release from wheels, or the wheels of some parts of it.

    PyPI has compilers from CUDA 13.0 on. Left unpinned, nvidia-nvvm comes in its newest release.
    """
    pins = dict.fromkeys(_pin(release, *_WHEELS[name]) for name in names or _WHEELS)
    return f"`pip install {' '.join(pins)}`"


def _pin(release: str, wheel: str, parts: int) -> str:
    shared = numbers(release)[:parts]
    return f"'{wheel}=={'.'.join(map(str, shared))}{'' if len(shared) == 3 else '.*'}'"


def _fix(root: Path, nvcc: str, *names: str) -> str:
    """Wheels are put right by pip; another toolkit has to be installed again, or left alone."""
    if _is_of_wheels(root):
        return pip_command(nvcc, *names)
    return "install this toolkit again, or set CUDA_HOME to another"
