"""The claims of a wheel: the file `torchwheel.json` in its dist-info folder.

The pipeline writes the file, and the gates compare it with the binaries. What the claims say of
torch, GPUs and the toolkit is what the wheel's library needs of a machine: `LibraryNeeds`. A
universal wheel has several libraries, each with its own claims: `Part`.
"""

import dataclasses
import json
from typing import Any, Literal, get_args

from torchwheel.arch.model import Arch, Backend, parse
from torchwheel.errors import TorchwheelError
from torchwheel.versions import minor_version

FILE = "torchwheel.json"
SCHEMA = 3

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


def loads(text: str, where: str) -> Claims:
    """Read claims; a malformed file is a TorchwheelError of one line that names `where`."""
    try:
        data: dict[str, Any] = json.loads(text)
        if data.pop("schema") != SCHEMA:
            raise ValueError(f"schema {SCHEMA} expected")
        archs, borrowed = data.pop("archs"), tuple(data.pop("borrowed"))
        if not all(isinstance(text, str) for text in (*archs, *borrowed)):
            raise ValueError("archs and borrowed must be strings")
        parts = tuple(map(_part, data.pop("parts")))
        claims = Claims(**data, archs=tuple(map(parse, archs)), borrowed=borrowed, parts=parts)
        if claims.abi not in get_args(Abi):
            raise ValueError(f"unknown abi {claims.abi!r}")
        if bool(parts) != (claims.abi == "universal"):
            raise ValueError("a universal wheel has parts, and no other wheel has")
        _require_backend(claims.backend)
        _require_release(claims.torch_release)
        names = (claims.toolkit, claims.toolkit_version, claims.project_local)
        if not all(isinstance(name, str) for name in (claims.variant, *filter(None, names))):
            raise ValueError("variant, toolkit, toolkit_version and project_local must be strings")
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise TorchwheelError(f"{where}: not a torchwheel claims file: {error}") from error
    return claims


def _part(data: dict[str, Any]) -> Part:
    archs = data.pop("archs")
    part = Part(**data, archs=tuple(map(parse, archs)))
    texts = (part.name, part.file, part.sha256, part.toolkit_version or "")
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("name, file, sha256 and toolkit_version of a part must be strings")
    if part.kind not in get_args(PartKind):
        raise ValueError(f"unknown kind {part.kind!r} of a part")
    if part.abi not in get_args(NativeAbi):
        raise ValueError(f"unknown abi {part.abi!r} of part {part.name}")
    _require_backend(part.backend)
    if (part.kind == "kernels") != (part.torch_release is None):
        raise ValueError(f"part {part.name}: every kind but kernels names a torch_release")
    if part.torch_release is not None:
        _require_release(part.torch_release)
    return part


def _require_backend(backend: object) -> None:
    if backend not in (None, *get_args(Backend)):
        raise ValueError(f"unknown backend {backend!r}")


def _require_release(release: str) -> None:
    if not release or minor_version(release) != release:
        raise ValueError(f"torch_release {release!r} is not e.g. 2.11")
