"""The claims of a wheel: the file `torchwheel.json` in its dist-info folder.

The pipeline writes the file, and the gates compare it with the binaries. What the claims say of
torch, GPUs and the toolkit is what the wheel's library needs of a machine: `LibraryNeeds`. A
universal wheel has several libraries, each with its own claims: `Part`.
"""

import dataclasses
import functools
import json
from typing import Literal

from torchwheel_runtime.arch.model import Arch, Backend, parse
from torchwheel_runtime.errors import MalformedError, TorchwheelError
from torchwheel_runtime.json_files import parse_json
from torchwheel_runtime.text import quote
from torchwheel_runtime.versions import minor_version

FILE = "torchwheel.json"
SCHEMA = 5
FLAGS_SUFFIX = ".flags.json"
"""Ends the name of the file in which a build leaves a library's flags for the claims."""

NativeAbi = Literal["stable", "aten"]
Abi = Literal["stable", "aten", "pure", "universal"]
PartKind = Literal["kernels", "front_end", "entry_points"]
"""kernels: compiled kernels of one toolkit, which know neither torch nor Python. front_end: the
operators for one torch ABI, which know no toolkit. entry_points: an extension module over DLPack,
for every CPython, which knows neither torch's ABI nor a toolkit."""

DLPACK_SINCE = "2.10"
"""The first torch with DLPack's C exchange API, which entry points use."""


@dataclasses.dataclass(frozen=True)
class LibraryNeeds:
    """What a library needs of a machine: by its claims, by its binary, or as it will be built.

    Attributes:
        abi: ABI flavour.
        torch_range: the versions of torch it is for, e.g. ">=2.11"; empty for any.
        backend: whose GPUs it has kernels for.
        toolkit_version: the release of CUDA or ROCm it is built with, e.g. "13.0".
        archs: the GPUs it has code for.
    """

    abi: Abi
    torch_range: str = ""
    backend: Backend | None = None
    toolkit_version: str | None = None
    archs: tuple[Arch, ...] = ()


@dataclasses.dataclass(frozen=True)
class Part:
    """The claims of one library of a universal wheel.

    Attributes:
        kind: what it is.
        name: the toolkit ("cu124") of kernels; "stable" or "torch2.6" for a front end; "dlpack".
        file: its path in the wheel, e.g. "fusedops/_lib/kernels/cu124.so".
        sha256: hex digest of the file.
        torch_release: the oldest torch minor it is for, or the only one (front end of ABI aten);
            None for kernels.
        abi: the ABI flavour of a front end; "stable" for the others.
        old_abi: whether the torch of an aten front end has libstdc++'s old strings.
        backend: whose GPUs kernels are for; None for the other kinds, as the next two.
        toolkit_version: the toolkit's release, e.g. "12.4".
        archs: the GPUs that there is code for.
    """

    kind: PartKind
    name: str
    file: str
    sha256: str
    torch_release: str | None = None
    abi: NativeAbi = "stable"
    old_abi: bool = False
    backend: Backend | None = None
    toolkit_version: str | None = None
    archs: tuple[Arch, ...] = ()

    @property
    def needs(self) -> LibraryNeeds:
        """What the library needs of a machine, by these claims."""
        release = self.torch_release
        return LibraryNeeds(
            self.abi,
            torch_range(self.abi, release) if release else "",
            self.backend,
            self.toolkit_version,
            self.archs,
        )


@dataclasses.dataclass(frozen=True)
class LibraryFlags:
    """The extension's own flags that a library was built with.

    Attributes:
        file: the library's path in the wheel.
        flags: each with its field, e.g. ("cuda: --use_fast_math", "operator off: gemm").
    """

    file: str
    flags: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Claims:
    """The claims of one wheel.

    Attributes:
        variant: the variant's id, e.g. "cu130-stable".
        abi: ABI flavour.
        torch_release: the oldest torch minor it is for, or the only one (aten).
        backend: whose GPUs it has kernels for; None for a wheel without GPU code, and for a
            universal one, whose parts say it.
        toolkit: the toolkit's name, e.g. "cu130".
        toolkit_version: the toolkit's release, e.g. "13.0".
        archs: the GPUs it has code for.
        project_local: the local version that the project gives itself; the wheel's begins with it.
        borrowed: sonames that the wheel needs and torch brings beside its own libraries, e.g.
            ("libcudart.so.13",). The torch it was built with loads them, so the wheel needs a
            torch that loads the same.
        parts: the libraries of a universal wheel.
        flags: the flags of each library that has any of the extension's own.
        label: the label of a labelled wheel (`variant_format`), which is in its file name.
    """

    variant: str
    abi: Abi
    torch_release: str
    backend: Backend | None = None
    toolkit: str | None = None
    toolkit_version: str | None = None
    archs: tuple[Arch, ...] = ()
    project_local: str | None = None
    borrowed: tuple[str, ...] = ()
    parts: tuple[Part, ...] = ()
    flags: tuple[LibraryFlags, ...] = ()
    label: str | None = None

    def __hash__(self) -> int:
        return self._hash

    @functools.cached_property
    def _hash(self) -> int:
        """The hash of all fields, made once: the wheels of many releases share their claims."""
        return hash(tuple(getattr(self, field.name) for field in dataclasses.fields(self)))

    @property
    def torch_range(self) -> str:
        """The range of Requires-Dist, e.g. ">=2.11" or "==2.6.*"."""
        return torch_range(self.abi, self.torch_release)

    @property
    def local(self) -> str | None:
        """The wheel's local version, e.g. "cu130"; None for a pure or a universal wheel."""
        own = local_version(self.abi, self.toolkit, self.torch_release)
        return f"{self.project_local}.{own}" if self.project_local and own else own

    def part_of(self, file: str) -> Part | None:
        """The part whose library is `file`, a path in the wheel; None without parts."""
        return next((part for part in self.parts if part.file == file), None)

    @property
    def needs(self) -> LibraryNeeds:
        """What the wheel's library needs of a machine, by these claims."""
        return LibraryNeeds(
            self.abi, self.torch_range, self.backend, self.toolkit_version, self.archs
        )


def torch_range(abi: Abi, torch_release: str) -> str:
    """The torch versions a wheel is for: one minor (aten), or all from a floor on."""
    return f"=={torch_release}.*" if abi == "aten" else f">={torch_release}"


def local_version(abi: Abi, toolkit: str | None, torch_release: str) -> str | None:
    """The local version of a wheel: "cu130", "cu124torch2.6" or "cputorch2.6"; else None.

    Only the aten flavour can do without a toolkit: a C++ extension without GPU code.
    """
    if abi == "aten":
        return f"{toolkit or 'cpu'}torch{torch_release}"
    return toolkit


def dumps(claims: Claims) -> str:
    """Byte-stable JSON."""
    fields = {**dataclasses.asdict(claims), "archs": [str(arch) for arch in claims.archs]}
    fields["parts"] = [
        {**dataclasses.asdict(part), "archs": [str(arch) for arch in part.archs]}
        for part in claims.parts
    ]
    return json.dumps({"schema": SCHEMA, **fields}, indent=1) + "\n"


def loads(text: str | bytes, where: str) -> Claims:
    """Read claims; a malformed file is a TorchwheelError of one line that names `where`."""
    malformed = f"{where}: not a torchwheel claims file"
    try:
        claims = parse_json(
            text, Claims, where, schema=SCHEMA, complete=True, readers={Arch: parse}
        )
    except MalformedError as error:
        raise TorchwheelError(f"{malformed}: {error.reason}") from error
    if problem := problem_of(claims):
        raise TorchwheelError(f"{malformed}: {problem}")
    return claims


def problem_of(claims: Claims) -> str | None:
    """What is wrong with claims that their fields' types do not say; None if nothing is."""
    if bool(claims.parts) != (claims.abi == "universal"):
        return "a universal wheel has parts, and no other wheel has"
    for part in claims.parts:
        if (part.kind == "kernels") != (part.torch_release is None):
            return f"part {quote(part.name)}: every kind but kernels names a torch_release"
    releases = (claims.torch_release, *(part.torch_release for part in claims.parts))
    for release in releases:
        if release is not None and (not release or minor_version(release) != release):
            return f"torch_release {quote(release)} is not e.g. 2.11"
    return None
