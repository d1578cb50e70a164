"""What anybody's wheel claims: by its file name, its local version, METADATA and WHEEL."""

import dataclasses
import re
from collections.abc import Iterable

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from torchwheel.inspect.inspection import Inspection
from torchwheel.inspect.local_version import SAYS_NOTHING, LocalVersion, read_local_version

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
    on_torch = [
        r for r in requires if canonicalize_name(r.name) == "torch" and not _extra(r.marker)
    ]
    return NamedClaims(
        interpreters=_parts(tag.interpreter for tag in tags),
        abis=_parts(tag.abi for tag in tags),
        platforms=_parts(tag.platform for tag in tags),
        torch=on_torch[0].specifier if on_torch else None,
        local=said,
        cuda=said.cuda or _required_cuda(r.name for r in requires),
    )


def _extra(marker: object) -> bool:
    return "extra" in str(marker or "")


def _parts(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(values)))


def _required_cuda(names: Iterable[str]) -> str | None:
    """The major release of CUDA whose runtime is a requirement, e.g. "12"."""
    found = (_CUDA_PACKAGE.fullmatch(canonicalize_name(name)) for name in names)
    return next((match[1] for match in found if match and match[1]), None)
