"""Container images as data: the image that a variant needs, and its content."""

import dataclasses
import hashlib
import platform
from collections.abc import Container, Mapping
from pathlib import Path

from torchwheel.data import FOLDER, read
from torchwheel.image.debian import gxx_suite, newest_glibc, service_of
from torchwheel.matrix.sections import Containers, Matrix, Toolkit
from torchwheel.matrix.variants import Variant, python_tag
from torchwheel.project_links import own_paths
from torchwheel_runtime.arch.releases import cxx_standard
from torchwheel_runtime.errors import UsageError
from torchwheel_runtime.toolkit.index import requirement_lines
from torchwheel_runtime.toolkit.lock import components, pinned_requirements

LOCAL = "localhost/torchwheel"


@dataclasses.dataclass(frozen=True)
class BaseImage:
    """An unchanged Debian release: made here by mmdebstrap, or a public image.

    Attributes:
        suite: e.g. "bullseye".
        machine: the engine's name of a foreign machine, e.g. "arm64".
        snapshot: the day that an image made of it goes to; None if it stays as it is.
    """

    suite: str
    machine: str | None = None
    snapshot: str | None = None

    @property
    def local(self) -> str:
        """Name of the image that `base-images` makes."""
        parts = (self.suite, self.snapshot, self.machine)
        return f"{LOCAL}/base:{'-'.join(part for part in parts if part)}"

    @property
    def public(self) -> str:
        """Name of the release's public image."""
        return f"debian:{self.suite}-slim"


@dataclasses.dataclass(frozen=True)
class Image:
    """One image to build.

    Attributes:
        name: readable part of its reference, e.g. "cuda-13.0-cp312".
        recipe: text of the Dockerfile.
        args: build arguments.
        files: the build context, path to content.
        needs: the images it is made of, by the build arguments that get their references.
        machine: the foreign machine it is for, e.g. "arm64".
        beside: arguments and files that compilers do not see: Python and its tools.
        mirrors: arguments that say where something is taken from and not what it is, so that they
            do not count in the digest.
    """

    name: str
    recipe: str
    args: Mapping[str, str] = dataclasses.field(default_factory=dict)
    files: Mapping[str, str] = dataclasses.field(default_factory=dict)
    needs: "Mapping[str, Image | BaseImage]" = dataclasses.field(default_factory=dict)
    machine: str | None = None
    beside: tuple[str, ...] = ()
    mirrors: Mapping[str, str] = dataclasses.field(default_factory=dict)


def image_digest(image: Image, needs: Mapping[str, str], without: Container[str] = ()) -> str:
    """Hash of an image's content.

    Args:
        image: the image.
        needs: the id or digest of each image it is made of.
        without: arguments and files that are left out.
    """
    hashed = hashlib.sha256()
    parts = [("recipe", image.recipe), ("machine", image.machine or _native())]
    for kind, mapping in (("arg", image.args), ("file", image.files), ("needs", needs)):
        parts += [(f"{kind} {n}", mapping[n]) for n in sorted(mapping) if n not in without]
    for name, value in parts:
        hashed.update(f"{name}\0{len(value)}\0{value}\0".encode())
    return hashed.hexdigest()


def image_reference(image: Image, digest_: str) -> str:
    """Name for the engine, e.g. "localhost/torchwheel/cuda-13.0-cp312:0123456789abcdef"."""
    suffix = f"-{_native()}" if _native() and not image.machine else ""
    return f"{LOCAL}/{image.name}{suffix}:{digest_[:16]}"


def _native() -> str:
    """This machine, if images that are made for it are not those of the usual machine."""
    machine = platform.machine()
    return "" if machine == "x86_64" else machine


_CROSS_COMPILER = "g++-aarch64-linux-gnu"
# Parts of the toolkit for the machine that runs the wheel, not for the one that compiles.
_FOR_TARGET = ("nvidia-cuda-runtime", "nvidia-cuda-crt", "nvidia-cuda-cccl")


@dataclasses.dataclass(frozen=True)
class Recipes:
    """The folder of the image recipes of a matrix, and what its images are made of."""

    containers: Containers
    folder: Path

    @classmethod
    def of(cls, matrix: Matrix, root: Path) -> "Recipes":
        """Those of the matrix in the folder `root`, else the ones in this package."""
        containers = _containers(matrix)
        if containers.recipes is None:
            return cls(containers, FOLDER / "docker")
        folder = root / containers.recipes
        own_paths(root, folder.glob("*"))  # they are copied into images
        return cls(containers, folder)

    def read(self, name: str) -> str:
        """The text of a recipe or of a file beside it."""
        return read_recipe(self.folder / name)


def debian(
    recipes: Recipes,
    suite: str,
    machine: str | None = None,
    snapshot: str | None = None,
) -> Image | BaseImage:
    """A Debian release as it was on the day `snapshot`, or on that of the matrix; else of today."""
    service = service_of(recipes.containers)
    if service is None:
        return BaseImage(suite, machine)
    day = snapshot or recipes.containers.snapshot
    assert day  # noqa: S101 - there is a service for it
    return Image(
        name=f"debian-{suite}{f'-{machine}' if machine else ''}",
        recipe=recipes.read("debian.Dockerfile"),
        args={"SNAPSHOT": day},
        needs={"BASE_IMAGE": BaseImage(suite, machine, day)},
        machine=machine,
        mirrors={"SNAPSHOTS": service},
    )


def python_image(
    recipes: Recipes, python: str, suite: str | None = None, snapshot: str | None = None
) -> Image:
    """CPython of one minor, compiled for a Debian release's C library, by default the base's."""
    suite = suite or recipes.containers.base
    sources = {name: entry for name, entry in read("pythons.json").items() if name != "comment"}
    if python not in sources:
        raise UsageError(
            f"Python {python} has no source in torchwheel's data (it has {', '.join(sources)})"
        )
    entry = sources[python]
    return Image(
        name=f"python-{python}-{suite}",
        recipe=recipes.read("python.Dockerfile"),
        args={
            "VERSION": entry["version"],
            "SHA256": entry["sha256"],
            "SOURCES": " ".join(entry["sources"]),
        },
        needs={"BASE_IMAGE": debian(recipes, suite, snapshot=snapshot)},
    )


def cuda_image(
    recipes: Recipes,
    toolkit: Toolkit,
    python: str,
    platform_: str,
    cross: bool,
    standard: int = 17,
) -> Image:
    """The image with one CUDA toolkit and one CPython, for wheels of `platform_`.

    Its g++ has the C++ standard `standard`.
    """
    base = recipes.containers.base
    host = "linux_x86_64" if cross else platform_
    files = {
        "requirements.txt": recipes.read("requirements.txt"),
        "toolkit/cuda-toolkit.sh": recipes.read("cuda-toolkit.sh"),
    }
    if toolkit.packages:
        files["toolkit/expect-versions.sh"] = recipes.read("expect-versions.sh")
    if toolkit.source == "pypi":
        files["toolkit/toolkit.txt"] = requirement_lines(
            pinned_requirements(components(toolkit.version), host)
        )
    if cross:
        own = (part for part in components(toolkit.version) if part.project in _FOR_TARGET)
        files["toolkit/toolkit-aarch64.txt"] = requirement_lines(
            pinned_requirements(own, platform_)
        )
    gxx = gxx_suite(base, toolkit, standard)
    if cross and gxx != base:
        raise UsageError(
            f"toolkit {toolkit.name}: no cross compiler of {base} has C++{standard}, which torch's "
            f"headers need; build the wheels of {platform_} on a machine of it"
        )
    files["glibc-limit.py"] = recipes.read("glibc-limit.py")
    files["compiler/newer-gxx.sh"] = recipes.read("newer-gxx.sh")
    needs: dict[str, Image | BaseImage] = {
        "BASE_IMAGE": debian(recipes, base),
        "PYTHON_IMAGE": python_image(recipes, python),
    }
    if toolkit.packages:
        needs["TOOLKIT_IMAGE"] = debian(
            recipes, toolkit.packages.suite, snapshot=toolkit.packages.snapshot
        )
    suffix = "-for-aarch64" if cross else ""
    if gxx != base:
        needs["COMPILER_IMAGE"] = debian(recipes, gxx)
        suffix = f"-cxx{standard}"
    return Image(
        name=f"cuda-{toolkit.version}-{python_tag(python)}{suffix}",
        recipe=recipes.read("cuda.Dockerfile"),
        args={
            **_toolkit_args(toolkit),
            "CROSS": _CROSS_COMPILER if cross else "",
            "GLIBC": newest_glibc(recipes.containers),
        },
        files=files,
        needs=needs,
        beside=("PYTHON_IMAGE", "requirements.txt"),
    )


def rocm_image(recipes: Recipes, toolkit: Toolkit, python: str) -> Image:
    """The image with one ROCm; its CPython is the release's own, or replaces that."""
    packages = toolkit.packages
    if packages is None:
        raise UsageError(f"toolkit {toolkit.name}: ROCm comes from packages only")
    name = f"rocm-{toolkit.version}-{python_tag(python)}"
    if packages.python and python != packages.python:
        return Image(
            name=name,
            recipe=recipes.read("rocm-python.Dockerfile"),
            files={"requirements.txt": recipes.read("requirements.txt")},
            needs={
                "BASE_IMAGE": rocm_image(recipes, toolkit, packages.python),
                "PYTHON_IMAGE": python_image(recipes, python, packages.suite, packages.snapshot),
            },
            beside=("PYTHON_IMAGE", "requirements.txt"),
        )
    return Image(
        name=name,
        recipe=recipes.read("rocm.Dockerfile"),
        args={
            **_toolkit_args(toolkit),
            "APT_TARGET": packages.target or "",
            "GLIBC": newest_glibc(recipes.containers),
        },
        files={
            "requirements.txt": recipes.read("requirements.txt"),
            "glibc-limit.py": recipes.read("glibc-limit.py"),
            "expect-versions.sh": recipes.read("expect-versions.sh"),
        },
        needs={
            "BASE_IMAGE": debian(recipes, packages.suite, snapshot=packages.snapshot),
            "BUILD_BASE": debian(recipes, recipes.containers.base),
        },
        beside=("requirements.txt",),
    )


def _toolkit_args(toolkit: Toolkit) -> Mapping[str, str]:
    packages = toolkit.packages
    return {
        "SOURCE": toolkit.source,
        "VERSION": toolkit.version,
        "PACKAGES": " ".join(packages.install) if packages else "",
    }


def read_recipe(path: Path) -> str:
    """The text of a recipe or of a file beside it."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"{path}: {error.strerror}; an image recipe is expected there (containers.recipes)"
        ) from error


# The machine's name for Debian and container engines, by platform.
_MACHINES = {"linux_x86_64": "amd64", "linux_aarch64": "arm64"}


def python_of(matrix: Matrix, variant: Variant) -> str:
    """The Python that builds and tests a variant, e.g. "3.12"."""
    packages = variant.toolkit.packages if variant.toolkit else None
    of_suite = packages.python if packages else None
    return variant.python or of_suite or _containers(matrix).python


def is_cross(variant: Variant) -> bool:
    """Whether the variant is compiled on another machine than it runs on."""
    return variant.platform != f"linux_{platform.machine()}"


def image_of(matrix: Matrix, variant: Variant, root: Path) -> Image:
    """The image that builds a native variant on this machine; `root` has matrix.yaml."""
    recipes, toolkit = Recipes.of(matrix, root), variant.toolkit
    if toolkit is None:
        raise UsageError(f"{variant.id}: has no native code, so it is built on the host")
    if toolkit.source == "system":
        raise UsageError(
            f'{variant.id}: toolkit {toolkit.name} has the source "system", which is the host\'s '
            "own; in a container it is one of pypi, distribution, vendor"
        )
    if toolkit.backend == "rocm":
        return rocm_image(recipes, toolkit, python_of(matrix, variant))
    cross = is_cross(variant)
    if cross and (variant.platform != "linux_aarch64" or toolkit.source != "pypi"):
        raise UsageError(
            f"{variant.id}: is cross-compiled for linux_aarch64 with a toolkit from PyPI only; "
            f"build it on a machine of {variant.platform}"
        )
    standard = standard_of(variant)
    return cuda_image(
        recipes, toolkit, python_of(matrix, variant), variant.platform, cross, standard
    )


def standard_of(variant: Variant) -> int:
    """The C++ standard of the torch headers that a variant includes, e.g. 20."""
    aten = variant.abi == "aten" and not variant.part
    return cxx_standard(variant.torch_release if aten else None)


def emulated_image(matrix: Matrix, variant: Variant, root: Path) -> Image | None:
    """The image that runs a wheel of another machine under emulation, if the matrix has one."""
    containers = _containers(matrix)
    if containers.emulated is None or not is_cross(variant):
        return None
    machine = _MACHINES[variant.platform]
    recipes = Recipes.of(matrix, root)
    return Image(
        name=f"smoke-{containers.emulated}-{machine}",
        recipe=recipes.read("emulated.Dockerfile"),
        needs={"BASE_IMAGE": debian(recipes, containers.emulated, machine)},
        machine=machine,
    )


def _containers(matrix: Matrix) -> Containers:
    if matrix.containers is None:
        raise UsageError(
            'matrix.yaml: has no section "containers"; expected e.g. '
            'containers: {base: bullseye, python: "3.11"}'
        )
    return matrix.containers
