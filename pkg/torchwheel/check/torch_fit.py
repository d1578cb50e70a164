"""Which torch a library fits, by the symbols that it needs."""

import dataclasses
import re
from collections.abc import Iterable
from typing import Literal

from torchwheel.check.torch_exports import ExportTable
from torchwheel.inspect.elf import SHIMS
from torchwheel.inspect.library_facts import LibraryFacts

_OLD_STRING = re.compile(r"^_Z.*(?<=[KREPi])Ss")
_NEW_STRING = "__cxx11"
_HIP = re.compile(r"_Z\w*\d(?:hip|miopen)")
"""torch for ROCm alone has them, and the table is made of torch for CUDA."""
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
    own = frozenset[str]().union(*(sibling.exports for sibling in siblings))
    found = {name: table.releases_with(name) for name in sorted(library.torch - own)}
    names = [name for name in found if found[name] or _may_be_torchs(name)]
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


def _may_be_torchs(name: str) -> bool:
    if _HIP.match(name):
        return False
    return name.startswith((*SHIMS, "THP")) or _OF_EXTENSIONS.match(name) is not None


def _strings(names: Iterable[str]) -> Literal["old", "new"] | None:
    names = tuple(names)
    if any(_NEW_STRING in name for name in names):
        return "new"
    return "old" if any(map(_OLD_STRING.search, names)) else None
