"""What anybody's wheel claims: by its file name, its local version, METADATA and WHEEL."""

import dataclasses
import re
from collections.abc import Iterable

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from torchwheel.inspect.inspection import Inspection

_CUDA = re.compile(r"cu(?:da)?(\d{2})(\d?)(?![\d.])")
_ROCM = re.compile(r"rocm(\d)\.?(\d{0,2})")
_TORCH = re.compile(r"(?:torch|pt)(\d)\.?(\d{1,2})")
_STRINGS = re.compile(r"cxx11abi(true|false)")
_CUDA_PACKAGE = re.compile(r"nvidia-cuda-runtime(?:-cu(\d\d))?")


@dataclasses.dataclass(frozen=True)
class NamedClaims:
    """The claims of a wheel; None for what it says nothing about.

    Attributes:
        interpreters, abis, platforms: parts of the tags of the file name, or of WHEEL for an
            installed package.
        torch: the range of Requires-Dist.
        torch_minor: the torch in the local version, e.g. "2.8" of "+cu126torch2.8".
        cuda: the CUDA in the local version or in a requirement, e.g. "12.6", or "12".
        rocm: the ROCm in the local version.
        cpu: whether the local version says that it is for CPUs.
        new_strings: whether the local version says that std::string is the new one (cxx11abiTRUE).
    """

    interpreters: tuple[str, ...] = ()
    abis: tuple[str, ...] = ()
    platforms: tuple[str, ...] = ()
    torch: SpecifierSet | None = None
    torch_minor: str | None = None
    cuda: str | None = None
    rocm: str | None = None
    cpu: bool = False
    new_strings: bool | None = None


def claims_of(inspection: Inspection) -> NamedClaims:
    """The claims of a wheel or an installed package; a library alone claims nothing."""
    named, metadata = inspection.named, inspection.metadata
    tags = (named.tags if named else inspection.wheel_tags) or ()
    version = named.version if named else metadata.version if metadata else None
    local = (version.local if version else None) or ""
    requires = (metadata.requires_dist if metadata else None) or []
    on_torch = [
        r for r in requires if canonicalize_name(r.name) == "torch" and not _extra(r.marker)
    ]
    cuda, rocm = _CUDA.search(local), _ROCM.search(local)
    torch, strings = _TORCH.search(local), _STRINGS.search(local)
    return NamedClaims(
        interpreters=_parts(tag.interpreter for tag in tags),
        abis=_parts(tag.abi for tag in tags),
        platforms=_parts(tag.platform for tag in tags),
        torch=on_torch[0].specifier if on_torch else None,
        torch_minor=f"{torch[1]}.{torch[2]}" if torch else None,
        cuda=_release(cuda[1], cuda[2]) if cuda else _required_cuda(r.name for r in requires),
        rocm=_release(rocm[1], rocm[2]) if rocm else None,
        cpu=re.match(r"cpu(?![a-z])", local) is not None,
        new_strings=strings[1] == "true" if strings else None,
    )


def _extra(marker: object) -> bool:
    return "extra" in str(marker or "")


def _parts(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(values)))


def _release(major: str, minor: str) -> str:
    return f"{major}.{minor}" if minor else major


def _required_cuda(names: Iterable[str]) -> str | None:
    """The major release of CUDA whose runtime is a requirement, e.g. "12"."""
    found = (_CUDA_PACKAGE.fullmatch(canonicalize_name(name)) for name in names)
    return next((match[1] for match in found if match and match[1]), None)
