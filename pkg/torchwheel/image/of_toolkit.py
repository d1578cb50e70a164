"""The images that are made from recipes: one CPython, one CUDA toolkit, one ROCm."""

from collections.abc import Mapping
from pathlib import Path

from torchwheel.data import read
from torchwheel.errors import UsageError
from torchwheel.image.recipe import Base, Image
from torchwheel.matrix.places_model import Containers
from torchwheel.matrix.resolve import python_tag
from torchwheel.matrix.toolkit_model import Toolkit
from torchwheel.toolkit.index import requirement_lines
from torchwheel.toolkit.lock import components, pins

_CROSS_COMPILER = "g++-aarch64-linux-gnu"
# What of the toolkit is for the machine that the wheel is for, not for the one that compiles.
_FOR_TARGET = ("nvidia-cuda-runtime", "nvidia-cuda-crt", "nvidia-cuda-cccl")


def python_image(containers: Containers, recipes: Path, python: str) -> Image:
    """CPython of one minor, compiled for the base's C library."""
    known = {name: entry for name, entry in read("pythons.json").items() if name != "comment"}
    if python not in known:
        raise UsageError(
            f"Python {python} has no source in torchwheel's data (it has {', '.join(known)})"
        )
    entry = known[python]
    return Image(
        name=f"python-{python}-{containers.base}",
        recipe=text_of(recipes / "python.Dockerfile"),
        args={
            "VERSION": entry["version"],
            "SHA256": entry["sha256"],
            "SOURCES": " ".join(entry["sources"]),
        },
        files={},
        needs={"BASE_IMAGE": Base(containers.base)},
    )


def cuda_image(
    containers: Containers,
    toolkit: Toolkit,
    recipes: Path,
    python: str,
    platform_: str,
    cross: bool,
) -> Image:
    """The image with one CUDA toolkit and one CPython, for wheels of `platform_`."""
    host = "linux_x86_64" if cross else platform_
    files = {
        "requirements.txt": text_of(recipes / "requirements.txt"),
        "toolkit/cuda-toolkit.sh": text_of(recipes / "cuda-toolkit.sh"),
    }
    if toolkit.source == "pypi":
        files["toolkit/toolkit.txt"] = requirement_lines(pins(components(toolkit.version), host))
    if cross:
        own = (part for part in components(toolkit.version) if part.project in _FOR_TARGET)
        files["toolkit/toolkit-aarch64.txt"] = requirement_lines(pins(own, platform_))
    needs: dict[str, Image | Base] = {
        "BASE_IMAGE": Base(containers.base),
        "PYTHON_IMAGE": python_image(containers, recipes, python),
    }
    if toolkit.packages:
        needs["TOOLKIT_IMAGE"] = Base(toolkit.packages.suite)
    suffix = "-for-aarch64" if cross else ""
    return Image(
        name=f"cuda-{toolkit.version}-{python_tag(python)}{suffix}",
        recipe=text_of(recipes / "cuda.Dockerfile"),
        args={**_source(toolkit), "CROSS": _CROSS_COMPILER if cross else ""},
        files=files,
        needs=needs,
        beside=("PYTHON_IMAGE", "requirements.txt"),
    )


def rocm_image(containers: Containers, toolkit: Toolkit, recipes: Path, python: str) -> Image:
    """The image with one ROCm; its CPython is the release's own."""
    packages = toolkit.packages
    if packages is None:
        raise UsageError(f"toolkit {toolkit.name}: ROCm comes from packages only")
    return Image(
        name=f"rocm-{toolkit.version}-{python_tag(python)}",
        recipe=text_of(recipes / "rocm.Dockerfile"),
        args={**_source(toolkit), "APT_TARGET": packages.target or ""},
        files={"requirements.txt": text_of(recipes / "requirements.txt")},
        needs={"BASE_IMAGE": Base(packages.suite), "BUILD_BASE": Base(containers.base)},
        beside=("requirements.txt",),
    )


def _source(toolkit: Toolkit) -> Mapping[str, str]:
    packages = toolkit.packages
    return {
        "SOURCE": toolkit.source,
        "VERSION": toolkit.version,
        "PACKAGES": " ".join(packages.install) if packages else "",
    }


def text_of(path: Path) -> str:
    """A recipe or a file that goes with one."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"{path}: {error.strerror}; an image recipe is expected there (containers.recipes)"
        ) from error
