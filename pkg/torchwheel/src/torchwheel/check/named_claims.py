"""What anybody's wheel claims, and the torch that its libraries fit: the input of its gates.

It claims by its file name, its local version, METADATA and WHEEL.
"""

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from torchwheel.check.torch_symbols import ExportTable, export_table
from torchwheel.inspect.inspection import Inspection
from torchwheel.inspect.library_facts import LibraryFacts
from torchwheel.inspect.local_version import SAYS_NOTHING, LocalVersion, read_local_version
from torchwheel_runtime.doctor.remedies import OLD_STRING
from torchwheel_runtime.inspect.elf import SHIMS, TORCH_PYTHON
from torchwheel_runtime.versions import required_range

_CUDA_PACKAGE = re.compile(r"nvidia-cuda-runtime(?:-cu(\d\d))?")


@dataclasses.dataclass(frozen=True)
class NamedClaims:
    """The claims of a wheel; None for what it says nothing about.

    Attributes:
        interpreters, abis, platforms: parts of the tags of the file name, or of WHEEL for an
            installed package.
        torch: the range of Requires-Dist.
        local: what the local version says.
        cuda: the CUDA in the local version or in a requirement, e.g. "12.6", or "12".
    """

    interpreters: tuple[str, ...] = ()
    abis: tuple[str, ...] = ()
    platforms: tuple[str, ...] = ()
    torch: SpecifierSet | None = None
    local: LocalVersion = SAYS_NOTHING
    cuda: str | None = None


def claims_of(inspection: Inspection) -> NamedClaims:
    """The claims of a wheel or an installed package; a library alone claims nothing."""
    named, metadata = inspection.named, inspection.metadata
    tags = (named.tags if named else inspection.wheel_tags) or ()
    version = named.version if named else metadata.version if metadata else None
    said = read_local_version(version)
    requires = (metadata.requires_dist if metadata else None) or []
    interpreters = _parts(tag.interpreter for tag in tags)
    return NamedClaims(
        interpreters=interpreters,
        abis=_parts(tag.abi for tag in tags),
        platforms=_parts(tag.platform for tag in tags),
        torch=required_range("torch", map(_without_local, requires), _markers(interpreters)),
        local=said,
        cuda=said.cuda or _required_cuda(r.name for r in requires),
    )


_OF_ONE_PYTHON = re.compile(r"cp3(\d+)", re.ASCII)
_TORCH_FILE = re.compile(r"/torch-(\d+(?:\.\d+)+)(?=[+%-])[^/]*\.whl", re.ASCII)


def _markers(interpreters: Sequence[str]) -> Mapping[str, str]:
    """The variables of markers that a wheel for one Python decides."""
    match = _OF_ONE_PYTHON.fullmatch(interpreters[0]) if len(interpreters) == 1 else None
    if match is None:
        return {}
    return {"python_version": f"3.{match[1]}", "python_full_version": f"3.{match[1]}.0"}


def _without_local(requirement: Requirement) -> Requirement:
    """A requirement without local versions, of which releases have several: 2.7.0 of 2.7.0+cu126.

    The file of an address is one release.
    """
    own = Requirement(str(requirement))
    if file := _TORCH_FILE.search(own.url or ""):
        own.specifier = SpecifierSet(f"=={file[1]}")
    elif "+" in str(own.specifier):
        own.specifier = SpecifierSet(re.sub(r"\+[\w.]+", "", str(own.specifier)))
    return own


def _parts(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(values)))


def _required_cuda(names: Iterable[str]) -> str | None:
    """The major release of CUDA whose runtime is a requirement, e.g. "12"."""
    found = (_CUDA_PACKAGE.fullmatch(canonicalize_name(name)) for name in names)
    return next((match[1] for match in found if match and match[1]), None)


_NEW_STRING = "__cxx11"
_OTHERS = re.compile(r"_Z\w*\d(?:hip|miopen|xpu)")
"""torch for ROCm or XPU alone has them, and the table is made of torch for CUDA."""
_OF_EXTENSIONS = re.compile(r"_ZN[KVr]*(?:2at|3c10|5torch|6caffe2)|_ZT[ISV]N?(?:2at|3c10|5torch)")
"""Names in a namespace of torch; others only have a type of torch among their parameters."""


@dataclasses.dataclass(frozen=True)
class TorchFit:
    """The torch that a library needs.

    Attributes:
        shims: how many C symbols of libtorch it needs.
        others: how many others of torch it needs: C++, or of libtorch_python.
        strings: whose std::string its symbols have: that of before GCC 5, or the new one.
        releases: the torch minors that have every symbol, in order.
        lacking: for each other release of the table, one symbol that it lacks.
        unknown: symbols that no release has.
    """

    shims: int
    others: int
    strings: Literal["old", "new"] | None
    releases: tuple[str, ...]
    lacking: tuple[tuple[str, str], ...]
    unknown: tuple[str, ...]


def fit_torch(
    library: LibraryFacts, siblings: Iterable[LibraryFacts], table: ExportTable
) -> TorchFit | None:
    """The torch that a library fits; None if it needs no symbol of torch.

    Args:
        library: the library.
        siblings: all libraries of the wheel, which may have symbols for it.
        table: the symbols of each release.
    """
    found = torch_names(library, siblings, table)
    names = list(found)
    if not names:
        return None
    known = [name for name in names if found[name]]
    releases = tuple(r for r in table.releases if all(r in found[name] for name in known))
    lacking = tuple(
        (release, next(name for name in known if release not in found[name]))
        for release in table.releases
        if release not in releases
    )
    shims = sum(name.startswith(SHIMS) for name in names)
    return TorchFit(
        shims,
        len(names) - shims,
        _strings(names),
        releases,
        lacking,
        tuple(name for name in names if not found[name]),
    )


def torch_names(
    library: LibraryFacts, siblings: Iterable[LibraryFacts], table: ExportTable
) -> Mapping[str, frozenset[str]]:
    """The symbols that a library needs of torch, sorted, and the releases that have each."""
    own = frozenset[str]().union(*(sibling.exports for sibling in siblings))
    found = {name: table.releases_with(name) for name in sorted(library.torch - own)}
    return {name: has for name, has in found.items() if has or _may_be_torchs(name)}


def _may_be_torchs(name: str) -> bool:
    if _OTHERS.match(name):
        return False
    return name.startswith((*SHIMS, TORCH_PYTHON)) or _OF_EXTENSIONS.match(name) is not None


def _strings(names: Iterable[str]) -> Literal["old", "new"] | None:
    names = tuple(names)
    if any(_NEW_STRING in name for name in names):
        return "new"
    mangled = (name for name in names if name.startswith("_Z"))
    return "old" if any(map(OLD_STRING.search, mangled)) else None


@dataclasses.dataclass(frozen=True)
class NamedCase:
    """The input of every gate: facts, claims, and the torch that each library fits by its name."""

    facts: Inspection
    claims: NamedClaims
    torch: Mapping[str, TorchFit]
    table: ExportTable


def case_of(facts: Inspection) -> NamedCase:
    """The case of a wheel, package or library."""
    table = export_table() if any(lib.torch for lib in facts.libraries) else ExportTable((), {})
    fits = {lib.name: fit_torch(lib, facts.libraries, table) for lib in facts.libraries}
    torch = {name: fit for name, fit in fits.items() if fit is not None}
    return NamedCase(facts, claims_of(facts), torch, table)
