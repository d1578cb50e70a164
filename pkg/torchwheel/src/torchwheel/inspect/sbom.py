"""The SBOM of a wheel (PEP 770): what each of its libraries was made with, as CycloneDX.

It is made of the claims' own facts and of the locks, and has neither a date nor a random number, so
equal builds have equal bytes. A pure wheel was made with nothing: its SBOM names the wheel alone.
Containers import this module: only the standard library and packaging are present there.
"""

import contextlib
import dataclasses
import json
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from torchwheel_runtime.errors import MalformedError
from torchwheel_runtime.json_files import parse_json

FOLDER = "sboms"
"""Of the dist-info folder. auditwheel puts its own file there, about the libraries it copies."""
FILE = f"{FOLDER}/torchwheel.cdx.json"
_SPEC = "1.6"
_ROLE = "torchwheel:role"

Role = Literal["compiler", "toolkit", "image", "headers", "runtime"]
"""compiler, toolkit, image: they made the library. headers, runtime: their code may be in it."""
_FORMS: Mapping[str, tuple[str, str]] = {
    "compiler": ("application", "excluded"),
    "toolkit": ("application", "excluded"),
    "image": ("container", "excluded"),
    "headers": ("library", "required"),
    "runtime": ("library", "required"),
}
"""CycloneDX's type and scope of each role."""


@dataclasses.dataclass(frozen=True, order=True)
class Material:
    """Something that a library was made with, beside the project's own sources.

    Attributes:
        role: what it does for the library.
        name: e.g. "nvidia-cuda-nvcc".
        version: empty if the lock does not name one.
        sha256: hex digest of its file, or of what decides the image; empty if no lock has it.
        purl: its package URL; empty if it has none.
    """

    role: Role
    name: str
    version: str = ""
    sha256: str = ""
    purl: str = ""

    def __str__(self) -> str:
        return f"{self.name} {self.version}".rstrip()

    @property
    def ref(self) -> str:
        """What names it in an SBOM: no other material has it."""
        return f"{self.role}:{self.name}@{self.version}#{self.sha256[:16] or self.purl}"


Materials = tuple[Material, ...]


def pypi_material(role: Role, name: str, version: str, sha256: str = "") -> Material:
    """A wheel of PyPI."""
    return Material(role, name, version, sha256, _pypi_url(name, version))


def _pypi_url(name: str, version: str) -> str:
    return f"pkg:pypi/{name}@{urllib.parse.quote(version, safe='')}"


@dataclasses.dataclass(frozen=True)
class BuiltLibrary:
    """A library of a wheel: its path there, its hash in hex, what it was made with."""

    file: str
    sha256: str
    materials: Materials = ()


def is_grafted(file: str) -> bool:
    """Whether auditwheel put a library there: into a folder NAME.libs, a copy of another's."""
    return any(part.endswith(".libs") for part in file.split("/")[:-1])


@dataclasses.dataclass(frozen=True)
class Sbom:
    """What an SBOM says.

    Attributes:
        name: the wheel's distribution, normalised.
        version: the wheel's.
        libraries: those of the wheel, in the order of their paths.
        generator: the version of torchwheel that wrote it.
    """

    name: str
    version: str
    libraries: tuple[BuiltLibrary, ...]
    generator: str

    @property
    def materials(self) -> Materials:
        """The materials of all libraries, each once."""
        return tuple(sorted({one for library in self.libraries for one in library.materials}))


def dump_sbom(sbom: Sbom) -> str:
    """Byte-stable JSON."""
    root = _pypi_url(sbom.name, sbom.version)
    own = {"type": "library", "bom-ref": root, "name": sbom.name, "version": sbom.version}
    files = [_file_ref(library.file) for library in sbom.libraries]
    linked = [(_file_ref(one.file), [m.ref for m in one.materials]) for one in sbom.libraries]
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": _SPEC,
        "version": 1,
        "metadata": {
            "tools": {
                "components": [
                    {"type": "application", "name": "torchwheel", "version": sbom.generator}
                ]
            },
            "component": {**own, "purl": root},
        },
        "components": [
            *map(_file_component, sbom.libraries),
            *map(_material_component, sbom.materials),
        ],
        "dependencies": [
            {"ref": ref, **({"dependsOn": on} if on else {})}
            for ref, on in [(root, files), *linked]
        ],
        # What a project copied into its own sources is not known here.
        "compositions": [
            {"aggregate": "incomplete" if sbom.libraries else "complete", "assemblies": [root]}
        ],
    }
    return json.dumps(document, indent=1) + "\n"


def _file_ref(file: str) -> str:
    return f"file:{file}"


def _hashes(digest: str) -> dict[str, Any]:
    return {"hashes": [{"alg": "SHA-256", "content": digest}]} if digest else {}


def _file_component(library: BuiltLibrary) -> dict[str, Any]:
    ref = _file_ref(library.file)
    return {"type": "file", "bom-ref": ref, "name": library.file, **_hashes(library.sha256)}


def _material_component(material: Material) -> dict[str, Any]:
    kind, scope = _FORMS[material.role]
    return {
        "type": kind,
        "bom-ref": material.ref,
        "name": material.name,
        **({"version": material.version} if material.version else {}),
        "scope": scope,
        **_hashes(material.sha256),
        **({"purl": material.purl} if material.purl else {}),
        "properties": [{"name": _ROLE, "value": material.role}],
    }


def parse_sbom(content: bytes | str, where: str) -> Sbom:
    """Read an SBOM of torchwheel's, which must be as `dump_sbom` writes it.

    Raises:
        MalformedError: one line that names `where`.
    """
    document = parse_json(content, object, where)
    text = content if isinstance(content, str) else content.decode("utf-8")
    # What is read is written again, so nothing in it can have been read wrongly.
    with contextlib.suppress(AttributeError, IndexError, KeyError, TypeError, ValueError):
        if dump_sbom(sbom := _read(document)) == text:
            return sbom
    says = "expected an SBOM as torchwheel writes it, found one with another form"
    raise MalformedError(where, says, "build the wheel again")


def _read(document: Any) -> Sbom:  # noqa: ANN401 - any JSON; of another form, any error
    needs = {one["ref"]: one.get("dependsOn", ()) for one in document["dependencies"]}
    components = document["components"]
    named = {}
    for one in components:
        if one["type"] != "file":
            role = one["properties"][0]["value"]
            texts = (_text(one, "version"), _digest(one), _text(one, "purl"))
            material = Material(role, _text(one, "name"), *texts)
            named[material.ref] = material
    libraries = (
        BuiltLibrary(
            _text(one, "name"), _digest(one), tuple(named[ref] for ref in needs[one["bom-ref"]])
        )
        for one in components
        if one["type"] == "file"
    )
    about = document["metadata"]
    own, generator = about["component"], about["tools"]["components"][0]
    name, version = _text(own, "name"), _text(own, "version")
    return Sbom(name, version, tuple(libraries), _text(generator, "version"))


def _text(component: Any, key: str) -> str:  # noqa: ANN401 - any JSON
    return str(component.get(key, ""))


def _digest(component: Any) -> str:  # noqa: ANN401 - any JSON
    return _text(component["hashes"][0], "content") if "hashes" in component else ""


def materials_text(materials: Sequence[Material]) -> str:
    """The materials in one line, by what they do."""
    by_role = {role: [one for one in materials if one.role == role] for role in get_args(Role)}
    return "; ".join(
        f"{role}: {', '.join(map(str, found))}" for role, found in by_role.items() if found
    )
