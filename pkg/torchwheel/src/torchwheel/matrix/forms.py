"""The types of the texts in a matrix: each checks its text and describes it in the JSON schema."""

import dataclasses
import re
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidatorFunctionWrapHandler,
)
from pydantic_core import CoreSchema, core_schema

from torchwheel_runtime.arch.model import (
    CUDA_PATTERN,
    ROCM_PATTERN,
    Arch,
    CudaArch,
    RocmArch,
    parse,
)
from torchwheel_runtime.text import quote
from torchwheel_runtime.variant_format import LABEL_PATTERN
from torchwheel_runtime.versions import is_requirement, is_specifier


@dataclasses.dataclass(frozen=True)
class Form:
    """A pattern that a text must match; the error shows what it should look like."""

    what: str
    pattern: str
    examples: tuple[str, ...]

    def check(self, text: str) -> str:
        """Return `text`, or raise a ValueError with the line a user reads."""
        if re.fullmatch(self.pattern, text, re.ASCII):
            return text
        expected = " or ".join(quote(example) for example in self.examples)
        raise ValueError(f"{quote(text)} is not {self.what}; expected e.g. {expected}")

    def __get_pydantic_core_schema__(
        self, source: type[Any], handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {
            **handler(schema),
            "pattern": f"^({self.pattern})$",
            "examples": list(self.examples),
        }


class _ArchForm:
    """Parses an arch where the matrix is read, and writes it as text where a model is dumped."""

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_wrap_validator_function(
            _arch, core_schema.str_schema(), serialization=core_schema.to_string_ser_schema()
        )

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {
            "type": "string",
            "pattern": f"^({CUDA_PATTERN}|{ROCM_PATTERN})$",
            "examples": ["9.0", "12.0+PTX", "gfx90a"],
        }


def _arch(value: object, check_text: ValidatorFunctionWrapHandler) -> Arch:
    return value if isinstance(value, CudaArch | RocmArch) else parse(check_text(value))


def _specifiers(text: str) -> str:
    if not is_specifier(text):
        raise ValueError(f'{quote(text)} is not a version range; expected e.g. ">=9,<16"')
    return text


def _requirement(text: str) -> str:
    if not is_requirement(text):
        raise ValueError(
            f'{quote(text)} is not a requirement; expected e.g. "pytest" or "numpy>=2"'
        )
    return text


ProjectName = Annotated[
    str,
    Form("a project name", r"[A-Za-z0-9]|[A-Za-z0-9][A-Za-z0-9._-]*[A-Za-z0-9]", ("fusedops",)),
]
ImportName = Annotated[
    str, Form("a package's name in Python", r"[A-Za-z_][A-Za-z0-9_]*", ("fusedops",))
]
# The name is also the wheel's local version: lower case, no dash.
ToolkitName = Annotated[
    str, Form("a toolkit name", r"[a-z][a-z0-9]*(\.[a-z0-9]+)*", ("cu130", "rocm6.4"))
]
LabelName = Annotated[
    str,
    Form("a label (1 to 16 of 0-9, a-z, . and _)", LABEL_PATTERN, ("cu13", "cu13_sm90", "null")),
]
SuiteName = Annotated[str, Form("a Debian release", r"[a-z][a-z0-9-]*", ("bullseye", "trixie"))]
SnapshotDate = Annotated[
    str,
    Form("a moment in UTC", r"20[0-9]{6}T[0-9]{6}Z", ("20261030T120000Z",)),
]
SERVICE = Form(
    "an address", r"https?://[A-Za-z0-9.:-]+(/[A-Za-z0-9._~-]+)*", ("http://example.org/archive",)
)
ServiceAddress = Annotated[str, SERVICE]
REGISTRY = Form(
    "a place in a registry",
    r"[a-z0-9.-]+(:[0-9]{1,5})?(/[a-z0-9]+([._-]+[a-z0-9]+)*)+",
    ("registry.example.org/me/torchwheel", "127.0.0.1:5000/torchwheel"),
)
RegistryName = Annotated[str, REGISTRY]
PackageName = Annotated[
    str,
    Form(
        "a package's name",
        r"[a-z0-9][a-z0-9+.-]+(=[A-Za-z0-9.+~:-]+\*?)?",
        ("hipcc", "g++-13", "hipcc=7.2.*"),
    ),
]
SelectionName = Annotated[
    str, Form("a selection name", r"[a-z][a-z0-9_-]*", ("default", "release"))
]
RunnerLabel = Annotated[
    str, Form("a runner's label", r"[A-Za-z0-9][A-Za-z0-9._-]*", ("ubuntu-24.04", "self-hosted"))
]
Release = Annotated[
    str, Form("a major.minor version", r"(0|[1-9][0-9]?)\.(0|[1-9][0-9]?)", ("13.0", "2.11"))
]
ExactVersion = Annotated[
    str,
    Form("an exact version", r"(0|[1-9][0-9]*)(\.(0|[1-9][0-9]*)){2}(\+[a-z0-9.]+)?", ("2.13.0",)),
]
GlibcVersion = Annotated[str, Form("a glibc version", r"2\.[1-9][0-9]?", ("2.28", "2.34"))]
PythonVersion = Annotated[str, Form("a Python version", r"3\.[1-9][0-9]?", ("3.10", "3.13"))]
VariantPattern = Annotated[
    str,
    Form("a variant id or pattern", r"[a-z0-9._*?\[\]!-]+", ("cu130-stable", "*-stable")),
]
RelativePath = Annotated[
    str,
    Form(
        "a path inside the project",
        # No leading slash, no part that is "..", no backslash.
        r"(?!(.*/)?\.\.(/|$))[^/\\\s][^\\\r\n]*",
        (".", "tests/smoke"),
    ),
]
# A reference that begins with a dash would be an option of git.
_GIT = (
    r"git\+((?:https|file)://[^@\s#]+)@([A-Za-z0-9_][A-Za-z0-9._/+=,!%-]*)"
    r"(?:#(?:egg=[A-Za-z0-9._-]+&)?subdirectory=((?!(?:[^#&]*/)?\.\.(?:/|$))[^/\\\s#&][^\\\s#&]*))?"
)
SourceText = Annotated[
    str,
    Form(
        "a path inside the project, a release or a git reference",
        rf"{_GIT}|(?!git\+)(?!(.*/)?\.\.(/|$))[^/\\\s][^\\\r\n]*",
        (".", "name==1.0", "git+https://host/path@v1.0"),
    ),
]
Sha256 = Annotated[str, Form("a SHA-256 in hex", r"[0-9a-f]{64}", ("9b7d8ec8" + "0" * 56,))]
ImportPath = Annotated[
    str,
    Form(
        "a module's name in Python",
        r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*",
        ("fusedops", "fusedops.ops"),
    ),
]
# What torchwheel sets itself would be replaced: what is built would not be what is said.
EnvironmentVariable = Annotated[
    str,
    Form(
        "a variable of the project's own",
        r"(?!(TORCHWHEEL_\w+|TORCH_CUDA_ARCH_LIST|CUDA_HOME|PATH|PYTHONPATH|HOME)$)"
        r"[A-Za-z_][A-Za-z0-9_]*",
        ("FORCE_BUILD",),
    ),
]
# cibuildwheel expands them as a shell does.
EnvironmentValue = Annotated[
    str, Form("a plain value", r"[^\x00-\x1f\x7f$`\\\"']*", ("TRUE", "-O2"))
]
SettingName = Annotated[
    str, Form("a setting's name", r"[A-Za-z-][A-Za-z0-9_.-]*", ("cmake.define.WITH_X",))
]
GatePattern = Annotated[
    str, Form("a path in the wheel, or a pattern", r"[^/\s\\][^\s\\]*", ("*.so", "name/_C.so"))
]
RepositoryAddress = Annotated[
    str,
    Form(
        "a repository's address",
        r"https?://[A-Za-z0-9._:-]+(/[A-Za-z0-9._-]+)+",
        ("https://github.com/OWNER/NAME",),
    ),
]
IssuerAddress = Annotated[
    str,
    Form(
        "an issuer's address",
        r"https?://[A-Za-z0-9._:/-]+",
        ("https://token.actions.githubusercontent.com",),
    ),
]
MatrixArch = Annotated[Arch, _ArchForm()]
Specifiers = Annotated[str, AfterValidator(_specifiers)]
RequirementText = Annotated[str, AfterValidator(_requirement)]


SDIST_ENDINGS = (".tar.gz", ".tgz", ".tar.xz", ".tar.bz2", ".zip")
_RELEASE = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([0-9][A-Za-z0-9.!+-]*)")

SourceKind = Literal["folder", "sdist", "release", "git"]


@dataclasses.dataclass(frozen=True)
class ProjectSource:
    """The place of a project's sources.

    Attributes:
        kind: folder and sdist lie beside matrix.yaml; release is of the package index.
        place: the path; of a release the project's name; of git the repository's address.
        version: of a release; of git the branch, tag or commit.
        subdirectory: of git the project's folder in the repository.
    """

    kind: SourceKind
    place: str
    version: str = ""
    subdirectory: str = ""

    @property
    def below(self) -> PurePosixPath:
        """The project's folder in the tree that is fetched, or that matrix.yaml is in."""
        return PurePosixPath(self.place if self.kind == "folder" else self.subdirectory)


def parse_source(text: str) -> ProjectSource:
    """Read `project.source`; any other text is a folder."""
    if git := re.fullmatch(_GIT, text, re.ASCII):
        return ProjectSource("git", git[1], git[2], git[3] or "")
    if match := _RELEASE.fullmatch(text):
        return ProjectSource("release", match[1], match[2])
    if text.endswith(SDIST_ENDINGS):
        return ProjectSource("sdist", text)
    return ProjectSource("folder", text)
