"""What `matrix.yaml` may hold: its sections, frozen, with nothing unknown let through."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from torchwheel.matrix.forms import (
    ArchText,
    ExactVersion,
    ProjectName,
    PythonVersion,
    RelativePath,
    Release,
    RequirementText,
    SelectionName,
    Specifiers,
    ToolkitName,
    VariantPattern,
)

Platform = Literal["linux_x86_64", "linux_aarch64"]
NativeAbi = Literal["stable", "aten"]
Source = Literal["pypi", "system", "image"]


class Section(BaseModel):
    """Base of every section: frozen, strict types, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Project(Section):
    """The extension that is built."""

    name: ProjectName
    source: Annotated[RelativePath, Field(description="Folder of its pyproject.toml.")] = "."


class Floor(Section):
    """The oldest torch a flavour runs with."""

    torch: Annotated[Release, Field(description='Oldest torch minor, e.g. "2.11".')]


class Exact(Section):
    """A flavour bound to one torch minor; the minors are those of `torch:`."""


class Abis(Section):
    """ABI flavours that are offered; one that is left out is not built."""

    stable: Annotated[
        Floor | None,
        Field(description="libtorch stable ABI: one binary for each torch from the floor on."),
    ] = None
    aten: Annotated[
        Exact | None,
        Field(description="libtorch C++ API: one binary for each torch minor and CPython."),
    ] = None
    pure: Annotated[
        Floor | None, Field(description="No native code: one wheel for every machine.")
    ] = None


class HostCompiler(Section):
    """C++ compilers that the toolkit's compiler works with, as version ranges."""

    gcc: Specifiers | None = None
    clang: Specifiers | None = None


class ToolkitSection(Section):
    """A CUDA or ROCm release with its compiler, and what is built with it."""

    backend: Literal["cuda", "rocm"]
    version: Annotated[Release, Field(description='Release, e.g. "13.0".')]
    abis: Annotated[tuple[NativeAbi, ...], Field(min_length=1)]
    archs: Annotated[tuple[ArchText, ...], Field(min_length=1, description="GPUs to compile for.")]
    source: Annotated[
        Source,
        Field(description="Where the compiler is from: PyPI wheels, CUDA_HOME, a container."),
    ]
    host_compiler: HostCompiler = HostCompiler()


class Toolkit(ToolkitSection):
    """A toolkit's section together with its name, e.g. "cu130"."""

    name: ToolkitName


class TorchRelease(Section):
    """A torch minor: the toolkits whose wheels serve it, and its Pythons."""

    toolkits: tuple[ToolkitName, ...]
    pythons: Annotated[tuple[PythonVersion, ...], Field(min_length=1)]


class Exclusion(Section):
    """Variants that are not built, and why."""

    variant: Annotated[VariantPattern, Field(description="Variant id, or a pattern of ids.")]
    reason: Annotated[str, Field(min_length=1)]


class Smoke(Section):
    """How a finished wheel is tried out in a clean environment."""

    tests: Annotated[RelativePath, Field(description="Folder of the smoke tests.")]
    torch: Annotated[ExactVersion, Field(description="torch they run with, where none is given.")]
    requires: Annotated[
        tuple[RequirementText, ...], Field(description="What they need beside torch.")
    ] = ()


class Gates(Section):
    """Limits a wheel must keep."""

    max_size_mib: Annotated[int, Field(gt=0)]


class Matrix(Section):
    """What is built, tested and published."""

    schema_: Annotated[Literal[1], Field(alias="schema", description="Version of this format.")]
    project: Project
    abis: Abis
    toolkits: Mapping[ToolkitName, ToolkitSection]
    torch: Annotated[
        Mapping[Release, TorchRelease],
        Field(description="torch releases, for the aten flavour and the indexes by torch."),
    ] = {}
    platforms: Annotated[tuple[Platform, ...], Field(min_length=1)]
    selections: Annotated[
        Mapping[SelectionName, Annotated[tuple[VariantPattern, ...], Field(min_length=1)]],
        Field(description="Names for sets of variants, as ids or patterns of ids."),
    ]
    exclude: tuple[Exclusion, ...] = ()
    smoke: Smoke
    gates: Gates

    def toolkit(self, name: str) -> Toolkit:
        """The toolkit of that name."""
        return Toolkit(name=name, **dict(self.toolkits[name]))
