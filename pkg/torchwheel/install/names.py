"""What the local version of a wheel says: `+cu124torch2.6`, `+pt26cu124`, `+cu12cxx11abifalse`.

Projects have no common form, so words that several of them use are looked for. What a name does
not say stays unknown.
"""

import re

from packaging.version import Version

from torchwheel.index.note import Kernels, WheelNeeds

# Versions in lower case; `.` is the only separator that is left in them.
_TORCH = re.compile(r"(?:torch|pt)(\d{1,3})(?:\.(\d{1,2}))?(?!\d)", re.ASCII)
_CUDA = re.compile(r"(?<![a-z])cu(?:da)?(\d{2,3})(?:\.(\d))?(?!\d)", re.ASCII)
_ROCM = re.compile(r"(?<![a-z])rocm(\d{1,3})(?:\.(\d{1,2}))?(?!\d)", re.ASCII)
_CPU = re.compile(r"(?<![a-z])cpu")
_ABI = re.compile(r"cxx11abi(true|false|[01])(?![a-z0-9])")
_MOST_MINOR = 40
"""torch251 is 2.5.1, torch211 is 2.11: no torch has a greater minor than this."""


def needs_of_name(version: Version) -> WheelNeeds:
    """What the local version says that the wheel needs."""
    local = version.local or ""
    kernels: list[Kernels] = []
    if found := _CUDA.search(local):
        kernels.append(Kernels("cuda", _cuda_release(found[1], found[2])))
    if found := _ROCM.search(local):
        kernels.append(Kernels("rocm", _rocm_release(found[1], found[2])))
    torch = _TORCH.search(local)
    minor = _torch_minor(torch[1], torch[2]) if torch else None
    abi = _ABI.search(local)
    return WheelNeeds(
        abi="aten" if minor else None,
        torch=(f"=={minor}.*",) if minor else (),
        kernels=tuple(kernels),
        for_cpu=not kernels and _CPU.search(local) is not None,
        old_abi=abi[1] in ("false", "0") if abi else None,
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
