"""What a wheel needs of a machine, as an index says it: the key `_torchwheel` of a file.

The key of a project's page names the bundled packages that the index publishes with the wheels.
PEP 691 leaves keys that begin with an underscore to the index, so other clients skip this one.
"""

import dataclasses
import functools
import json
from collections.abc import Mapping
from typing import Any

from packaging.utils import canonicalize_name

from torchwheel_runtime.arch.model import Arch, Backend, parse
from torchwheel_runtime.claims import Abi, Claims, LibraryNeeds
from torchwheel_runtime.errors import MalformedError
from torchwheel_runtime.json_files import parse_json
from torchwheel_runtime.text import quote
from torchwheel_runtime.versions import is_specifier

ALL = "all"
"""The folder of an index with a document of each project that lists the wheels of all groups."""
KEY = "_torchwheel"
SCHEMA = 1


@dataclasses.dataclass(frozen=True)
class Kernels:
    """GPU code of a wheel, built with one toolkit.

    Attributes:
        backend: whose GPUs it is for.
        release: of the toolkit, e.g. "13.0"; "13" where a name says no more; empty if unknown.
        archs: the GPUs; empty if they are not known.
    """

    backend: Backend
    release: str
    archs: tuple[Arch, ...] = ()


@dataclasses.dataclass(frozen=True)
class WheelNeeds:
    """What a wheel needs of a machine.

    Attributes:
        abi: ABI flavour; None if it is not known.
        torch: ranges of torch, of which one must have the installed one; empty if none is known.
        kernels: one of each toolkit; empty without GPU code.
        for_cpu: whether its name says that it is for a torch for CPUs.
        old_abi: whether it is for a torch with the strings of before GCC 5; None if unknown.
    """

    abi: Abi | None = None
    torch: tuple[str, ...] = ()
    kernels: tuple[Kernels, ...] = ()
    for_cpu: bool = False
    old_abi: bool | None = None

    def libraries(self) -> tuple[LibraryNeeds, ...]:
        """The needs of each library with kernels, or of the one without, for torchwheel's rules.

        Where the flavour is unknown, the rules of torch's C++ API hold, which are the stricter.
        The kernels of a universal wheel know no torch, as those of a stable one.
        """
        abi = "stable" if self.abi == "universal" else self.abi or "aten"
        if not self.kernels:
            return (LibraryNeeds(abi),)
        return tuple(
            LibraryNeeds(abi, "", kernels.backend, kernels.release or None, kernels.archs)
            for kernels in self.kernels
        )


@dataclasses.dataclass(frozen=True)
class IndexNote:
    """What our index adds to a file's entry."""

    needs: WheelNeeds
    withdrawn: bool = False
    """Whether it was withdrawn. PEP 592's `yanked` also marks files that are offered by version."""


def needs_of_claims(claims: Claims) -> WheelNeeds:
    """What a wheel needs, by its claims."""
    kernels: tuple[Kernels, ...]
    if claims.parts:
        ends = [part.needs for part in claims.parts if part.kind == "front_end"]
        kernels = tuple(
            Kernels(part.backend, part.toolkit_version or "", part.archs)
            for part in claims.parts
            if part.kind == "kernels" and part.backend
        )
        return WheelNeeds("universal", tuple(end.torch_range for end in ends), kernels)
    kernels = (
        (Kernels(claims.backend, claims.toolkit_version or "", claims.archs),)
        if claims.backend
        else ()
    )
    return WheelNeeds(claims.abi, (claims.torch_range,), kernels)


def plain(value: object) -> Any:  # noqa: ANN401 - JSON
    """A value as JSON: dataclasses are objects, an arch is text."""
    if isinstance(value, Arch):
        return str(value)
    if dataclasses.is_dataclass(value):
        return {
            field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)
        }
    return list(map(plain, value)) if isinstance(value, tuple) else value


def note_json(note: IndexNote) -> dict[str, Any]:
    """The value of the key, as JSON."""
    return {"schema": SCHEMA, **plain(note)}


# Wheels of one variant need the same in each release.
@functools.lru_cache(maxsize=10_000)
def note_text(claims: Claims, withdrawn: bool) -> str:
    """The note of a wheel with these claims, as JSON on one line."""
    return json.dumps(note_json(IndexNote(needs_of_claims(claims), withdrawn)))


def read_bundled(value: Mapping[str, object], where: str) -> frozenset[str]:
    """The bundled packages that a project's page names, by the value of the key there.

    Raises:
        MalformedError: they are no names.
    """
    names = value.get("bundled", [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise MalformedError(where, f"{KEY}: bundled: expected names, found another value")
    return frozenset(map(canonicalize_name, names))


def read_note(value: object, where: str) -> IndexNote | None:
    """The note of a file's entry; None if there is none, or one of another schema.

    Raises:
        MalformedError: it has this schema's number and not its form.
    """
    if not isinstance(value, dict) or value.get("schema") != SCHEMA:
        return None
    try:
        note = parse_json(
            json.dumps(value),
            IndexNote,
            where,
            schema=SCHEMA,
            others=True,
            readers={Arch: parse},
        )
    except MalformedError as error:
        raise MalformedError(where, f"{KEY}: {error.reason}") from None
    for text in note.needs.torch:
        if not is_specifier(text):
            reason = f'{KEY}: needs.torch: expected e.g. ">=2.11", found {quote(text)}'
            raise MalformedError(where, reason)
    return note
