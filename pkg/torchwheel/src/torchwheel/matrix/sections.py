"""The sections of `matrix.yaml` as frozen pydantic models that refuse unknown keys."""

import functools
import json
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from torchwheel.matrix.forms import (
    EnvironmentValue,
    EnvironmentVariable,
    ExactVersion,
    GatePattern,
    GlibcVersion,
    ImportName,
    ImportPath,
    IssuerAddress,
    LabelName,
    MatrixArch,
    PackageName,
    ProjectName,
    PythonVersion,
    RegistryName,
    RelativePath,
    Release,
    RepositoryAddress,
    RequirementText,
    RunnerLabel,
    SelectionName,
    ServiceAddress,
    SettingName,
    Sha256,
    SnapshotDate,
    SourceText,
    Specifiers,
    SuiteName,
    ToolkitName,
    VariantPattern,
)
from torchwheel_runtime.arch.model import Backend
from torchwheel_runtime.arch.releases import ToolkitRelease
from torchwheel_runtime.claims import Abi


class Section(BaseModel):
    """Base of every section: frozen, strict types, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


ToolkitAbi = Literal["stable", "aten", "ordinary"]
Source = Literal["pypi", "system", "distribution", "vendor"]


class HostCompilerBounds(Section):
    """C++ compilers that the toolkit's compiler works with, as version ranges."""

    gcc: Specifiers | None = None
    clang: Specifiers | None = None


class Packages(Section):
    """Packages that bring a toolkit into its container image."""

    suite: Annotated[SuiteName, Field(description='Debian release they are made for: "trixie".')]
    install: Annotated[
        tuple[PackageName, ...],
        Field(min_length=1, description='Each with the version that is expected: "hipcc=7.2.*".'),
    ]
    snapshot: Annotated[
        SnapshotDate | None,
        Field(description="The day that they are of; default: containers.snapshot."),
    ] = None
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

    backend: Backend
    version: Annotated[Release, Field(description='Release, e.g. "13.0".')]
    abis: Annotated[
        tuple[ToolkitAbi, ...],
        Field(description="Flavours of its own wheels; none if universal wheels alone use it."),
    ]
    archs: Annotated[
        tuple[MatrixArch, ...], Field(min_length=1, description="GPUs to compile for.")
    ]
    source: Annotated[
        Source,
        Field(description="Where the compiler is from: PyPI, CUDA_HOME, packages in a container."),
    ]
    packages: Packages | None = None
    host_compiler: HostCompilerBounds = HostCompilerBounds()

    @property
    def release(self) -> ToolkitRelease:
        """The release, which knows the archs it can compile."""
        return ToolkitRelease(self.backend, self.version)


class Toolkit(ToolkitSection):
    """A toolkit's section together with its name, e.g. "cu130"."""

    name: ToolkitName


Labels = Annotated[tuple[RunnerLabel, ...], Field(min_length=1)]


class Containers(Section):
    """The container images that wheels are built in."""

    recipes: Annotated[
        RelativePath | None,
        Field(description="Folder of image recipes of your own; default: torchwheel's."),
    ] = None
    base: Annotated[
        SuiteName, Field(description="Debian release whose C library the wheels are linked with.")
    ]
    python: Annotated[
        PythonVersion, Field(description="Python that builds wheels which are for any Python.")
    ]
    snapshot: Annotated[
        SnapshotDate | None,
        Field(description="The day whose packages the images are made of; default: today's."),
    ] = None
    snapshot_service: Annotated[
        ServiceAddress | None,
        Field(description="Where Debian's archive can be had as it was on any day."),
    ] = None
    registry: Annotated[
        RegistryName | None,
        Field(description="Where images are pulled from by digest; default: they are built."),
    ] = None
    glibc: Annotated[
        GlibcVersion | None,
        Field(description="The newest C library that a wheel built in them may need."),
    ] = None
    emulated: Annotated[
        SuiteName | None,
        Field(description="Debian release with torch, to try wheels of another machine in."),
    ] = None


USUAL_CONTAINERS = Containers(base="bullseye", python="3.11", glibc="2.28")
"""The containers of an ordinary project that declares none: torch's own wheels need that glibc."""


class Machines(Section):
    """CI's machines for the wheels of one platform, by the labels of their runners."""

    build: Annotated[Labels, Field(description="Where they are built.")]
    cpu: Annotated[
        Labels | None, Field(description="Where they are tried without a GPU; default: build.")
    ] = None
    cuda: Annotated[Labels | None, Field(description="A runner with an NVIDIA GPU.")] = None
    rocm: Annotated[Labels | None, Field(description="A runner with an AMD GPU.")] = None


Platform = Literal["linux_x86_64", "linux_aarch64"]
WheelPlatform = Literal["linux_x86_64", "linux_aarch64", "any"]


class Project(Section):
    """The extension that is built."""

    name: ProjectName
    source: Annotated[
        SourceText,
        Field(
            description="Folder of its pyproject.toml; with abis.ordinary also an sdist's path, "
            "git+https://HOST/PATH@REF[#subdirectory=DIR], or NAME==VERSION of the package index."
        ),
    ] = "."
    sha256: Annotated[
        Sha256 | None, Field(description="Hash of the sdist, where the source is one.")
    ] = None
    packages: Annotated[
        tuple[ImportName, ...],
        Field(description="Its top packages, where the name of the project is not the only one."),
    ] = ()
    bundled: Annotated[
        tuple[RelativePath, ...],
        Field(
            description="Folders, or wheels, of pure-Python distributions in this repository that "
            "it requires. What torchwheel-runtime requires is bundled with it."
        ),
    ] = ()


class TorchFloor(Section):
    """The oldest torch a flavour runs with."""

    torch: Annotated[Release, Field(description='Oldest torch minor, e.g. "2.11".')]


class AtenAbi(Section):
    """A flavour bound to one torch minor; the minors are those of `torch:`."""

    through: Annotated[
        Release | None,
        Field(description="Newest torch minor it is built for; later ones are left to stable."),
    ] = None


WheelPython = Literal["each", "abi3", "any"]


class OrdinaryAbi(Section):
    """torch's C++ API through the project's own build: a wheel for each torch minor and toolkit."""

    through: Annotated[
        Release | None, Field(description="Newest torch minor it is built for; default: all.")
    ] = None
    python: Annotated[
        WheelPython,
        Field(
            description="The Pythons of a wheel: each CPython has its own; abi3: one wheel of the "
            "limited API serves all; any: one wheel without Python's symbols does."
        ),
    ] = "each"
    stable: Annotated[
        Release | None,
        Field(
            description="The oldest torch whose stable ABI the project keeps to: one wheel, built "
            "with the oldest torch that lists the toolkit, serves every torch from it on."
        ),
    ] = None


class Universal(Section):
    """One wheel for every torch, Python and GPU: kernel libraries and front ends in one file."""

    toolkits: Annotated[
        tuple[ToolkitName, ...], Field(min_length=1, description="Each gives a kernel library.")
    ]
    torch: Annotated[
        tuple[Release, ...],
        Field(description="Minors before the stable ABI's floor that get a front end each."),
    ] = ()
    entry_points: Annotated[
        bool, Field(description="Whether the extension has entry points over DLPack.")
    ] = False
    labels: Annotated[
        Mapping[LabelName, tuple[ToolkitName, ...]],
        Field(
            description="Labelled wheels, which the PEP calls variants: a smaller one with the "
            "kernels of some toolkits; of none, as null, the pure wheel."
        ),
    ] = {}
    unlabelled: Annotated[
        tuple[ToolkitName, ...], Field(description="Toolkits whose kernels no label has.")
    ] = ()


class Abis(Section):
    """ABI flavours that are offered; one that is left out is not built."""

    stable: Annotated[
        TorchFloor | None,
        Field(description="libtorch stable ABI: one binary for each torch from the floor on."),
    ] = None
    ordinary: Annotated[
        OrdinaryAbi | None,
        Field(description="The project's own build, against the torch of each release; alone."),
    ] = None
    aten: Annotated[
        AtenAbi | None,
        Field(description="libtorch C++ API: one binary for each torch minor and CPython."),
    ] = None
    pure: Annotated[
        TorchFloor | None, Field(description="No native code: one wheel for every machine.")
    ] = None
    universal: Annotated[
        Universal | None, Field(description="One wheel for each platform, made of parts.")
    ] = None


class TorchRelease(Section):
    """A torch minor: the toolkits whose wheels serve it, and its Pythons."""

    toolkits: tuple[ToolkitName, ...]
    pythons: Annotated[tuple[PythonVersion, ...], Field(min_length=1)]


class Exclusion(Section):
    """Variants that are not built, and why."""

    variant: Annotated[VariantPattern, Field(description="Variant id, or a pattern of ids.")]
    reason: Annotated[str, Field(min_length=1)]


AllowedGate = Literal["archs", "content", "runtime", "torch-symbols"]
ArchsBy = Literal["environment", "declared", "replaced"]


class Allowance(Section):
    """A finding of a gate that is meant, and why."""

    gate: Annotated[AllowedGate, Field(description="The gate.")]
    library: Annotated[GatePattern, Field(description='A path in the wheel, or a pattern: "*.so".')]
    reason: Annotated[str, Field(min_length=1)]


class OwnBuild(Section):
    """How the own build of an ordinary project is called."""

    requires: Annotated[
        tuple[RequirementText, ...],
        Field(description="Build requirements that the project does not declare."),
    ] = ()
    environment: Annotated[
        Mapping[EnvironmentVariable, EnvironmentValue],
        Field(description="Variables for its setup.py."),
    ] = {}
    toolkit_environment: Annotated[
        Mapping[ToolkitName, Mapping[EnvironmentVariable, EnvironmentValue]],
        Field(description="Variables that differ between toolkits, by the toolkit's name."),
    ] = {}
    config_settings: Annotated[
        Mapping[SettingName, EnvironmentValue],
        Field(description="Settings for its build backend (PEP 517)."),
    ] = {}
    imports: Annotated[
        tuple[ImportPath, ...],
        Field(description="What a smoke test imports; default: the packages of the wheel."),
    ] = ()
    tests: Annotated[
        RelativePath | None, Field(description="Folder of the project with tests for a GPU.")
    ] = None
    archs_by: Annotated[
        ArchsBy,
        Field(
            description="environment: TORCH_CUDA_ARCH_LIST decides. declared: setup.py hard-codes "
            "the archs, and the matrix lists the same. replaced: setup.py hard-codes archs, and "
            "the compiler gets those of the matrix instead."
        ),
    ] = "environment"
    allow: Annotated[
        tuple[Allowance, ...], Field(description="Findings of gates that are meant.")
    ] = ()
    shards: Annotated[
        int,
        Field(ge=1, le=99, description="CI's jobs that compile a variant; one more links it."),
    ] = 1

    def environment_for(self, toolkit: str) -> Mapping[str, str]:
        """The variables of its setup.py in a build with a toolkit."""
        return {**self.environment, **self.toolkit_environment.get(toolkit, {})}


class Smoke(Section):
    """How a finished wheel is tried out in a clean environment."""

    tests: Annotated[RelativePath | None, Field(description="Folder of the smoke tests.")] = None
    torch: Annotated[
        ExactVersion | None, Field(description="torch they run with, where none is given.")
    ] = None
    requires: Annotated[
        tuple[RequirementText, ...], Field(description="What they need beside torch.")
    ] = ()
    locks: Annotated[
        RelativePath | None,
        Field(description="Folder of locks with hashes, one a torch; for `--locked`."),
    ] = None
    without_gpu: Annotated[
        tuple[RelativePath, ...],
        Field(
            description="Those of the folder that are run where there is no GPU; default: all, or "
            "none of an ordinary project."
        ),
    ] = ()
    skips: Annotated[
        tuple[str, ...],
        Field(
            description="Reasons, or patterns of them, for which all cases of a test may be "
            "skipped. Without a GPU every reason that speaks of one is admitted."
        ),
    ] = ("only one GPU",)


class Gates(Section):
    """Limits a wheel must keep."""

    max_size_mib: Annotated[int, Field(gt=0)] = 512
    max_universal_mib: Annotated[int, Field(gt=0, description="For a universal wheel.")] = 25
    reproducible: Annotated[
        bool,
        Field(description="A release takes only native wheels that two builds gave the bytes of."),
    ] = False

    def size_of(self, abi: Abi) -> int:
        """The limit of a wheel's size in MiB."""
        return self.max_universal_mib if abi == "universal" else self.max_size_mib


class Workflows(Section):
    """The workflow files whose jobs sign, by their role."""

    build: Annotated[RelativePath, Field(description="Signs wheels and build records.")]
    smoke: Annotated[RelativePath, Field(description="Signs smoke records.")]
    release: Annotated[RelativePath, Field(description="Signs what is published.")]
    kernels: Annotated[
        RelativePath | None, Field(description="Signs kernels compiled for other jobs.")
    ] = None


ISSUER = "https://token.actions.githubusercontent.com"
"""The issuer of GitHub's jobs."""


class EarlierRelease(Section):
    """Another signer of earlier releases; what is left out is as it is now."""

    repository: Annotated[
        RepositoryAddress | None, Field(description="The repository as it was called.")
    ] = None
    workflow: Annotated[
        RelativePath | None, Field(description="The workflow that released, as it was called.")
    ] = None


class EvidenceSection(Section):
    """Whose signatures a release believes."""

    repository: Annotated[
        RepositoryAddress | None,
        Field(description="The repository of the workflows; default: --repository names it."),
    ] = None
    issuer: Annotated[
        IssuerAddress, Field(description="Who tells the certificate authority which job it is.")
    ] = ISSUER
    workflows: Workflows
    earlier: Annotated[
        tuple[EarlierRelease, ...],
        Field(description="Who signed earlier releases, before the project moved or was renamed."),
    ] = ()
    unsigned: Annotated[
        tuple[Sha256, ...],
        Field(description="Hashes of published catalogues that are believed without a signature."),
    ] = ()


class Matrix(Section):
    """What is built, tested and published."""

    schema_: Annotated[Literal[1], Field(alias="schema", description="Version of this format.")]
    project: Project
    abis: Abis
    build: Annotated[
        OwnBuild | None, Field(description="The project's own build; with abis.ordinary.")
    ] = None
    toolkits: Mapping[ToolkitName, ToolkitSection]
    torch: Annotated[
        Mapping[Release, TorchRelease],
        Field(description="torch releases: for the aten flavour, and to try wheels with."),
    ] = {}
    platforms: Annotated[tuple[Platform, ...], Field(min_length=1)]
    containers: Containers | None = None
    selections: Annotated[
        Mapping[SelectionName, Annotated[tuple[VariantPattern, ...], Field(min_length=1)]],
        Field(description="Names for sets of variants, as ids or patterns of ids."),
    ] = {}
    exclude: tuple[Exclusion, ...] = ()
    runners: Annotated[
        Mapping[WheelPlatform, Machines],
        Field(description="CI's machines by platform; a GPU that is not named is not waited for."),
    ] = {}
    smoke: Smoke = Smoke()
    gates: Gates = Gates()
    evidence: Annotated[
        EvidenceSection | None,
        Field(description="Whose signatures a release believes; without it nothing is signed."),
    ] = None

    @property
    def own_build(self) -> OwnBuild:
        """How an ordinary project's build is called."""
        return self.build or OwnBuild()

    @property
    def without_gpu(self) -> tuple[str, ...] | None:
        """The smoke tests for machines without a GPU: all if empty, none if None.

        An ordinary project's tests are for a GPU if it does not say otherwise.
        """
        return self.smoke.without_gpu or (None if self.abis.ordinary else ())

    def toolkit(self, name: str) -> Toolkit:
        """The toolkit of that name."""
        return _toolkit(name, self.toolkits[name])


@functools.lru_cache(maxsize=64)
def _toolkit(name: str, section: ToolkitSection) -> Toolkit:
    """A toolkit, made and checked once for all variants that it builds."""
    return Toolkit(name=name, **dict(section))


def schema_text() -> str:
    """Byte-stable text of the schema."""
    schema = Matrix.model_json_schema(by_alias=True)
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "torchwheel matrix"
    return json.dumps(schema, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
