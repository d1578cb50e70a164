"""The section of a toolkit in `matrix.yaml`."""

from typing import Annotated, Literal

from pydantic import Field

from torchwheel.matrix.forms import (
    ArchText,
    PackageName,
    PythonVersion,
    Release,
    Specifiers,
    SuiteName,
    ToolkitName,
)
from torchwheel.matrix.section import Section

NativeAbi = Literal["stable", "aten"]
Source = Literal["pypi", "system", "distribution", "vendor"]


class HostCompiler(Section):
    """C++ compilers that the toolkit's compiler works with, as version ranges."""

    gcc: Specifiers | None = None
    clang: Specifiers | None = None


class Packages(Section):
    """Packages that bring a toolkit into its container image."""

    suite: Annotated[SuiteName, Field(description='Debian release they are made for: "trixie".')]
    install: Annotated[tuple[PackageName, ...], Field(min_length=1)]
    target: Annotated[
        SuiteName | None,
        Field(description='Release beside the suite that they are taken from: "experimental".'),
    ] = None
    python: Annotated[
        PythonVersion | None,
        Field(description="The suite's own Python, where the image is made of the suite."),
    ] = None


class ToolkitSection(Section):
    """A CUDA or ROCm release with its compiler, and what is built with it."""

    backend: Literal["cuda", "rocm"]
    version: Annotated[Release, Field(description='Release, e.g. "13.0".')]
    abis: Annotated[tuple[NativeAbi, ...], Field(min_length=1)]
    archs: Annotated[tuple[ArchText, ...], Field(min_length=1, description="GPUs to compile for.")]
    source: Annotated[
        Source,
        Field(description="Where the compiler is from: PyPI, CUDA_HOME, packages in a container."),
    ]
    packages: Packages | None = None
    host_compiler: HostCompiler = HostCompiler()


class Toolkit(ToolkitSection):
    """A toolkit's section together with its name, e.g. "cu130"."""

    name: ToolkitName
