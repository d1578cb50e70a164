"""Which image a variant is built in: toolkit, Python and machine decide it, nothing else."""

import platform
from pathlib import Path

from torchwheel.errors import UsageError
from torchwheel.image.of_toolkit import cuda_image, rocm_image, text_of
from torchwheel.image.recipe import Base, Image
from torchwheel.matrix.model import Matrix
from torchwheel.matrix.places_model import Containers
from torchwheel.matrix.resolve import Variant

# Platforms by the name that Debian and container engines have for the machine.
_MACHINES = {"linux_x86_64": "amd64", "linux_aarch64": "arm64"}


def python_of(matrix: Matrix, variant: Variant) -> str:
    """The Python that builds and tests a variant, e.g. "3.12"."""
    packages = variant.toolkit.packages if variant.toolkit else None
    of_suite = packages.python if packages else None
    return variant.python or of_suite or _containers(matrix).python


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
        return rocm_image(containers, toolkit, recipes, python_of(matrix, variant))
    cross = is_cross(variant, machine)
    if cross and (variant.platform != "linux_aarch64" or toolkit.source != "pypi"):
        raise UsageError(
            f"{variant.id}: is cross-compiled for linux_aarch64 with a toolkit from PyPI only; "
            f"build it on a machine of {variant.platform}"
        )
    return cuda_image(
        containers, toolkit, recipes, python_of(matrix, variant), variant.platform, cross
    )


def emulated_image(matrix: Matrix, variant: Variant, root: Path) -> Image | None:
    """The image that tries a wheel for another machine by emulation, if the matrix has one."""
    containers = _containers(matrix)
    if containers.emulated is None or not is_cross(variant):
        return None
    machine = _MACHINES[variant.platform]
    return Image(
        name=f"smoke-{containers.emulated}-{machine}",
        recipe=text_of(root / containers.recipes / "emulated.Dockerfile"),
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
