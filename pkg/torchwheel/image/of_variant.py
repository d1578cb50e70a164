"""Which image a variant is built in: toolkit, Python and machine decide it, nothing else."""

import platform
from collections.abc import Mapping
from pathlib import Path

from torchwheel.data import read
from torchwheel.errors import UsageError
from torchwheel.image.recipe import Base, Image
from torchwheel.matrix.model import Matrix
from torchwheel.matrix.places_model import Containers
from torchwheel.matrix.resolve import Variant
from torchwheel.matrix.toolkit_model import Toolkit
from torchwheel.toolkit.lock import components

# Platforms by the name that Debian and container engines have for the machine.
_MACHINES = {"linux_x86_64": "amd64", "linux_aarch64": "arm64"}
_CROSS_COMPILER = "g++-aarch64-linux-gnu"
# What of the toolkit is for the machine that the wheel is for, not for the one that compiles.
_FOR_TARGET = ("nvidia-cuda-runtime", "nvidia-cuda-crt", "nvidia-cuda-cccl")


def python_of(matrix: Matrix, variant: Variant) -> str:
    """The Python that builds and tests a variant, e.g. "3.12"."""
    if variant.python_tag.startswith("cp"):
        return f"3.{variant.python_tag.removeprefix('cp3')}"
    packages = variant.toolkit.packages if variant.toolkit else None
    return (packages.python if packages else None) or _containers(matrix).python


def is_cross(variant: Variant, machine: str | None = None) -> bool:
    """Whether the variant is compiled on a machine it does not run on."""
    return variant.platform != f"linux_{machine or platform.machine()}"


def image_of(matrix: Matrix, variant: Variant, root: Path, machine: str | None = None) -> Image:
    """The image of a native variant.

    Args:
        matrix: the matrix.
        variant: a variant with a toolkit.
        root: the folder of matrix.yaml.
        machine: of the host, "x86_64" or "aarch64"; the running one if none is given.
    """
    containers, toolkit = _containers(matrix), variant.toolkit
    if toolkit is None:
        raise UsageError(f"{variant.id}: has no native code, so it is built on the host")
    if toolkit.source == "system":
        raise UsageError(
            f'{variant.id}: toolkit {toolkit.name} has the source "system", which is the host\'s '
            "own; in a container it is one of pypi, distribution, vendor"
        )
    recipes = root / containers.recipes
    if toolkit.backend == "rocm":
        return _rocm(containers, toolkit, recipes, python_of(matrix, variant))
    cross = is_cross(variant, machine)
    if cross and (variant.platform != "linux_aarch64" or toolkit.source != "pypi"):
        raise UsageError(
            f"{variant.id}: is cross-compiled for linux_aarch64 with a toolkit from PyPI only; "
            f"build it on a machine of {variant.platform}"
        )
    return _cuda(containers, toolkit, recipes, python_of(matrix, variant), variant.platform, cross)


def emulated_image(matrix: Matrix, variant: Variant, root: Path) -> Image | None:
    """The image that tries a wheel for another machine by emulation, if the matrix has one."""
    containers = _containers(matrix)
    if containers.emulated is None or not is_cross(variant):
        return None
    machine = _MACHINES[variant.platform]
    return Image(
        name=f"smoke-{containers.emulated}-{machine}",
        recipe=_text(root / containers.recipes / "emulated.Dockerfile"),
        args={},
        files={},
        needs={"BASE_IMAGE": Base(containers.emulated, machine)},
        machine=machine,
    )


def _containers(matrix: Matrix) -> Containers:
    if matrix.containers is None:
        raise UsageError(
            'matrix.yaml: has no section "containers"; expected e.g. '
            'containers: {base: bullseye, python: "3.11"}'
        )
    return matrix.containers


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
        recipe=_text(recipes / "python.Dockerfile"),
        args={
            "VERSION": entry["version"],
            "SHA256": entry["sha256"],
            "SOURCES": " ".join(entry["sources"]),
        },
        files={},
        needs={"BASE_IMAGE": Base(containers.base)},
    )


def _cuda(
    containers: Containers,
    toolkit: Toolkit,
    recipes: Path,
    python: str,
    platform_: str,
    cross: bool,
) -> Image:
    host = "linux_x86_64" if cross else platform_
    files = {
        "requirements.txt": _text(recipes / "requirements.txt"),
        "toolkit/cuda-toolkit.sh": _text(recipes / "cuda-toolkit.sh"),
    }
    if toolkit.source == "pypi":
        files["toolkit/toolkit.txt"] = _pins(toolkit.version, host)
    if cross:
        files["toolkit/toolkit-aarch64.txt"] = _pins(toolkit.version, platform_, _FOR_TARGET)
    needs: dict[str, Image | Base] = {
        "BASE_IMAGE": Base(containers.base),
        "PYTHON_IMAGE": python_image(containers, recipes, python),
    }
    if toolkit.packages:
        needs["TOOLKIT_IMAGE"] = Base(toolkit.packages.suite)
    suffix = "-for-aarch64" if cross else ""
    return Image(
        name=f"cuda-{toolkit.version}-cp{python.replace('.', '')}{suffix}",
        recipe=_text(recipes / "cuda.Dockerfile"),
        args={**_source(toolkit), "CROSS": _CROSS_COMPILER if cross else ""},
        files=files,
        needs=needs,
        beside=("PYTHON_IMAGE", "requirements.txt"),
    )


def _rocm(containers: Containers, toolkit: Toolkit, recipes: Path, python: str) -> Image:
    packages = toolkit.packages
    if packages is None:
        raise UsageError(f"toolkit {toolkit.name}: ROCm comes from packages only")
    return Image(
        name=f"rocm-{toolkit.version}-cp{python.replace('.', '')}",
        recipe=_text(recipes / "rocm.Dockerfile"),
        args={**_source(toolkit), "APT_TARGET": packages.target or ""},
        files={"requirements.txt": _text(recipes / "requirements.txt")},
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


def _pins(version: str, platform_: str, only: tuple[str, ...] = ()) -> str:
    """The components of a CUDA release as pip's requirements, each with its hash."""
    return "".join(
        f"{c.project}=={c.version} --hash=sha256:{c.sha256[platform_]}\n"
        for c in components(version)
        if not only or c.project in only
    )


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"{path}: {error.strerror}; an image recipe is expected there (containers.recipes)"
        ) from error
