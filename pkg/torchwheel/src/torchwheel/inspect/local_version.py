"""Reads what the local version of a wheel says: `+cu124torch2.6`, `+pt26cu124`, `+torch2100cu128`.

Projects have no common form, so words that several of them use are looked for. What a name does
not say stays unknown, and so does a word about torch that no form fits.
"""

import dataclasses
import re
from collections.abc import Mapping

from packaging.version import Version

from torchwheel_runtime.arch.releases import torch_releases
from torchwheel_runtime.machine.facts import other_backend

# Versions in lower case; `.` is the only separator that is left in them. A short word may follow
# the digits and letters of a commit, and no other letter.
_PT = r"(?<![g-z])py?t"
_FORMS = (
    # flash-attention: cu12torch2.6cxx11abiFALSE; MiroPsota's detectron2: 18f6958pt2.6.0cu124;
    # SageAttention: cu128torch2.9.0andHigher; torch-2.6-cu124, as PEP 440 writes it
    rf"(?:torch|{_PT})\.?(?P<major>\d)\.(?P<minor>\d{{1,2}})(?!\d)"
    r"(?:\.\d{1,2}(?!\d))?\.?(?P<later>andhigher)?",
    # NATTEN: torch260cu126 is 2.6.0, torch210cu121 is 2.1.0, torch2100cu128 is 2.10.0;
    # PyTorch3D: pyt240
    r"(?:torch|(?<![g-z])pyt)(?P<major>\d)(?P<minor>\d\d?)(?P<patch>\d)(?!\d)",
    # four digits are those of X.YY.Z in every form
    rf"{_PT}(?P<major>\d)(?P<minor>\d\d)(?P<patch>\d)(?!\d)",
    # PyG: pt26cu124, pt210cu128; torchsparse: torch20cu118
    rf"(?:torch|{_PT})(?P<major>\d)(?P<minor>\d\d?)(?!\d)",
)
"""The forms of a torch release, tried in this order; with `later`, later releases serve too."""
_TORCH = tuple(re.compile(form, re.ASCII) for form in _FORMS)
_ABOUT_TORCH = re.compile(rf"(?:torch|{_PT}(?=\d))[a-z0-9]*(?:\.\d+)*", re.ASCII)
# The last alternative names a backend without its release.
_CUDA = re.compile(
    r"(?<![a-z])cu(?:da\.?)?(\d{2,4})(?:\.(\d))?(?!\d)|(?<![a-z])cuda(?![a-z])", re.ASCII
)
_ROCM = re.compile(
    r"(?<![a-z])rocm\.?(\d{1,3})(?:\.(\d{1,2}))?(?!\d)|(?<![a-z])(?:rocm(?:sdk)?|hip)(?![a-z])",
    re.ASCII,
)
_CPU = re.compile(r"(?<![a-z])cpu")
_STRINGS = re.compile(r"cxx11\.?abi(true|false|[01])?(?![a-z0-9])")
_MOST_MINOR = 30
"""pt231 is 2.3.1, pt211 is 2.11: no torch has a greater minor than this."""
_CUDA_OF_OLD: Mapping[str, tuple[str, ...]] = {"2.1": ("11.8", "12.1"), "2.0": ("11.7", "11.8")}
"""Releases of CUDA that torch minors older than those of our data were published for: torch210cu128
is 2.10, as nobody built 2.1.0 for CUDA 12.8."""


@dataclasses.dataclass(frozen=True)
class LocalVersion:
    """What a wheel is for, by its local version; None for what that does not say.

    Attributes:
        torch: the minor release, e.g. "2.6".
        or_later: whether later ones serve, too.
        unread: a word about torch that no form fits: nobody knows which torch the wheel is for.
        cuda: the release, e.g. "12.4"; "12" where no more is said; empty for one of any release.
        rocm: the release, as that of CUDA.
        other: a backend that torchwheel does not know, e.g. "xpu".
        cpu: whether it is for CPUs, and not for a GPU.
        new_strings: whether std::string is the one since GCC 5 (cxx11abiTRUE, cxx11.abi).
    """

    torch: str | None = None
    or_later: bool = False
    unread: str | None = None
    cuda: str | None = None
    rocm: str | None = None
    other: str | None = None
    cpu: bool = False
    new_strings: bool | None = None

    @property
    def torch_range(self) -> str | None:
        """The torch that it is for: "==2.6.*", or ">=2.9"; None if it names none."""
        if self.torch is None:
            return None
        return f">={self.torch}" if self.or_later else f"=={self.torch}.*"


SAYS_NOTHING = LocalVersion()


def read_local_version(version: Version | None) -> LocalVersion:
    """What the local part of a version says."""
    local = (version.local if version else None) or ""
    found, other = _CUDA.search(local), other_backend(local)
    cuda = _cuda_release(found[1] or "", found[2]) if found else None
    rocm, strings = _ROCM.search(local), _STRINGS.search(local)
    torch, or_later, unread = _torch(local, cuda)
    return LocalVersion(
        torch=torch,
        or_later=or_later,
        unread=unread,
        cuda=cuda,
        rocm=_rocm_release(rocm[1] or "", rocm[2]) if rocm else None,
        other=other if not (found or rocm) else None,
        cpu=not (found or rocm or other) and _CPU.search(local) is not None,
        new_strings=strings[1] not in ("false", "0") if strings else None,
    )


def _torch(local: str, cuda: str | None) -> tuple[str | None, bool, str | None]:
    """The minor release of torch, whether later ones serve, and else the word that is not read."""
    match = next(filter(None, (form.search(local) for form in _TORCH)), None)
    if match is None:
        word = _ABOUT_TORCH.search(local)
        return None, False, word[0] if word else None
    found = match.groupdict(default="")
    major, minor, patch = found["major"], found["minor"], found.get("patch", "")
    if "patch" not in found and "later" not in found and _is_patch(minor):
        minor = minor[0]
    if patch and _is_minor(f"{major}.{minor}{patch}", f"{major}.{minor}", cuda):
        minor += patch
    return f"{major}.{int(minor)}", bool(found.get("later")), None


def _is_patch(digits: str) -> bool:
    """Whether the last of two digits is a patch release: pt201 is 2.0.1, pt251 is 2.5.1."""
    return len(digits) == 2 and (digits[0] == "0" or int(digits) > _MOST_MINOR)


def _is_minor(whole: str, minor: str, cuda: str | None) -> bool:
    """Whether the digits of X.Y.Z are those of a minor X.YZ, by the CUDA that they come with."""
    known = torch_releases()
    if cuda is None or whole not in known or minor not in _CUDA_OF_OLD:
        return False
    return cuda in known[whole].toolkits["cuda"] and cuda not in _CUDA_OF_OLD[minor]


def _cuda_release(digits: str, minor: str | None) -> str:
    """The release: "12.4" of "124"; "12" where no more is said."""
    if minor is not None and len(digits) == 2:
        return f"{digits}.{minor}"
    if len(digits) == 2 and digits > "20":  # cu92
        return f"{digits[0]}.{digits[1]}"
    return f"{digits[:2]}.{digits[2]}" if len(digits) > 2 else digits


def _rocm_release(digits: str, minor: str | None) -> str:
    """The release: "6.2" of "62" or "624"; "6" where no more is said."""
    if minor is not None:
        return f"{digits}.{minor}"
    return f"{digits[0]}.{digits[1]}" if len(digits) > 1 else digits
