"""What the local version of a wheel says: `+cu124torch2.6`, `+pt26cu124`, `+cu12cxx11abifalse`.

Projects have no common form, so words that several of them use are looked for. What a name does
not say stays unknown.
"""

import dataclasses
import re

from packaging.version import Version

# Versions in lower case; `.` is the only separator that is left in them.
_TORCH = re.compile(r"(?:torch|pt)(\d{1,3})(?:\.(\d{1,2}))?(?!\d)", re.ASCII)
_CUDA = re.compile(r"(?<![a-z])cu(?:da)?(\d{2,3})(?:\.(\d))?(?!\d)", re.ASCII)
_ROCM = re.compile(r"(?<![a-z])rocm(\d{1,3})(?:\.(\d{1,2}))?(?!\d)", re.ASCII)
_CPU = re.compile(r"(?<![a-z])cpu")
_STRINGS = re.compile(r"cxx11abi(true|false|[01])(?![a-z0-9])")
_MOST_MINOR = 40
"""torch251 is 2.5.1, torch211 is 2.11: no torch has a greater minor than this."""


@dataclasses.dataclass(frozen=True)
class LocalVersion:
    """What a wheel is for, by its local version; None for what that does not say.

    Attributes:
        torch: the minor release, e.g. "2.6".
        cuda: the release, e.g. "12.4"; "12" where no more is said.
        rocm: the release, as that of CUDA.
        cpu: whether it is for CPUs, and not for a GPU.
        new_strings: whether std::string is the one since GCC 5 (cxx11abiTRUE).
    """

    torch: str | None = None
    cuda: str | None = None
    rocm: str | None = None
    cpu: bool = False
    new_strings: bool | None = None


SAYS_NOTHING = LocalVersion()


def read_local_version(version: Version | None) -> LocalVersion:
    """What the local part of a version says."""
    local = (version.local if version else None) or ""
    cuda, rocm = _CUDA.search(local), _ROCM.search(local)
    torch, strings = _TORCH.search(local), _STRINGS.search(local)
    return LocalVersion(
        torch=_torch_minor(torch[1], torch[2]) if torch else None,
        cuda=_cuda_release(cuda[1], cuda[2]) if cuda else None,
        rocm=_rocm_release(rocm[1], rocm[2]) if rocm else None,
        cpu=not cuda and not rocm and _CPU.search(local) is not None,
        new_strings=strings[1] in ("true", "1") if strings else None,
    )


def _torch_minor(digits: str, minor: str | None) -> str | None:
    """The minor release: "2.6" of "2" and "6", or of "26"; None of a major alone."""
    if minor is not None:
        return f"{int(digits)}.{int(minor)}"
    if len(digits) == 1:
        return None
    rest = digits[1:] if int(digits[1:]) <= _MOST_MINOR else digits[1]
    return f"{digits[0]}.{int(rest)}"


def _cuda_release(digits: str, minor: str | None) -> str:
    """The release: "12.4" of "124"; "12" where no more is said."""
    if minor is not None and len(digits) == 2:
        return f"{digits}.{minor}"
    return f"{digits[:2]}.{digits[2]}" if len(digits) == 3 else digits


def _rocm_release(digits: str, minor: str | None) -> str:
    """The release: "6.2" of "62" or "624"; "6" where no more is said."""
    if minor is not None:
        return f"{digits}.{minor}"
    return f"{digits[0]}.{digits[1]}" if len(digits) > 1 else digits
