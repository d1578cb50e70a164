"""What `matrix.yaml` may hold: its sections, frozen, with nothing unknown let through."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from torchwheel.matrix.forms import (
    ExactVersion,
    ProjectName,
    PythonVersion,
    RelativePath,
    Release,
    RequirementText,
    SelectionName,
    ToolkitName,
    VariantPattern,
)
from torchwheel.matrix.places_model import Containers, Machines
from torchwheel.matrix.section import Section
from torchwheel.matrix.toolkit_model import Toolkit, ToolkitSection

Platform = Literal["linux_x86_64", "linux_aarch64"]
WheelPlatform = Literal["linux_x86_64", "linux_aarch64", "any"]


class Project(Section):
    """The extension that is built."""

    name: ProjectName
    source: Annotated[RelativePath, Field(description="Folder of its pyproject.toml.")] = "."
    companions: Annotated[
        tuple[RelativePath, ...],
        Field(description="Folders of pure-Python distributions of this repository it requires."),
    ] = ()


class Floor(Section):
    """The oldest torch a flavour runs with."""

    torch: Annotated[Release, Field(description='Oldest torch minor, e.g. "2.11".')]


class Exact(Section):
    """A flavour bound to one torch minor; the minors are those of `torch:`."""

    through: Annotated[
        Release | None,
        Field(description="Newest torch minor it is built for; later ones are left to stable."),
    ] = None


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
    without_gpu: Annotated[
        tuple[RelativePath, ...],
        Field(description="Those of the folder that are run where there is no GPU; default: all."),
    ] = ()


class Gates(Section):
    """Limits a wheel must keep."""

    max_size_mib: Annotated[int, Field(gt=0)]
    reproducible: Annotated[
        bool,
        Field(description="A release takes only native wheels that two builds gave the bytes of."),
    ] = False


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
    containers: Containers | None = None
    selections: Annotated[
        Mapping[SelectionName, Annotated[tuple[VariantPattern, ...], Field(min_length=1)]],
        Field(description="Names for sets of variants, as ids or patterns of ids."),
    ]
    exclude: tuple[Exclusion, ...] = ()
    runners: Annotated[
        Mapping[WheelPlatform, Machines],
        Field(description="CI's machines by platform; a GPU that is not named is not waited for."),
    ] = {}
    smoke: Smoke
    gates: Gates

    def served(self) -> Mapping[str, tuple[str, ...]]:
        """Torch minors, and the names of the toolkits whose wheels serve each."""
        return {minor: release.toolkits for minor, release in self.torch.items()}

    def toolkit(self, name: str) -> Toolkit:
        """The toolkit of that name."""
        return Toolkit(name=name, **dict(self.toolkits[name]))
