"""GPU backends and architectures as the matrix writes them, and their compiler flags.

Nothing but the standard library comes with it: an extension's `setup.py` uses this.
"""

import dataclasses
import re
from collections.abc import Mapping
from typing import Literal

from torchwheel.text import quote

Backend = Literal["cuda", "rocm"]

BRANDS: Mapping[Backend, str] = {"cuda": "CUDA", "rocm": "ROCm"}
"""Names of the backends in messages."""


CUDA_PATTERN = r"[1-9][0-9]?\.[0-9][af]?(\+PTX)?"
ROCM_PATTERN = r"gfx[1-9][0-9]?([0-9a-f]{2}|(-[1-9])?-generic)(:[a-z]+[+-])*"

_CUDA = re.compile(r"([1-9][0-9]?)\.([0-9])([af]?)(\+PTX)?", re.ASCII)
_FEATURES = r"((?::[a-z]+[+-])*)"
_ROCM = re.compile(rf"gfx([1-9][0-9]?)([0-9a-f])([0-9a-f]){_FEATURES}", re.ASCII)
_GENERIC = re.compile(rf"gfx([1-9][0-9]?)(?:-([1-9]))?-generic{_FEATURES}", re.ASCII)


@dataclasses.dataclass(frozen=True, order=True)
class CudaArch:
    """A compute capability: "9.0", "9.0a" (this chip only), "10.0f" (its family), "12.0+PTX"."""

    major: int
    minor: int
    suffix: Literal["", "a", "f"] = ""
    ptx: bool = False

    def __str__(self) -> str:
        return f"{self.name}{'+PTX' if self.ptx else ''}"

    @property
    def name(self) -> str:
        """The arch without PTX, e.g. "9.0a": what a compiler must know."""
        return f"{self.major}.{self.minor}{self.suffix}"

    @property
    def number(self) -> str:
        """As in `sm_90a`: "90a"."""
        return f"{self.major}{self.minor}{self.suffix}"


@dataclasses.dataclass(frozen=True, order=True)
class RocmArch:
    """An AMD GPU target: "gfx942", "gfx90a:xnack-", or for several at once: "gfx9-4-generic"."""

    major: int
    minor: int
    stepping: int
    features: tuple[str, ...] = ()
    generic: bool = False

    def __str__(self) -> str:
        return ":".join((self.name, *self.features))

    @property
    def name(self) -> str:
        """The target without feature flags, e.g. "gfx90a": what a compiler must know."""
        if self.generic:
            return f"gfx{self.major}{f'-{self.minor}' if self.minor else ''}-generic"
        return f"gfx{self.major}{self.minor:x}{self.stepping:x}"


Arch = CudaArch | RocmArch


def parse(text: str) -> Arch:
    """Read an arch; a ValueError says what an arch looks like."""
    if found := _CUDA.fullmatch(text):
        major, minor, suffix, ptx = found.groups()
        return CudaArch(int(major), int(minor), _suffix(suffix), ptx is not None)
    if found := _ROCM.fullmatch(text):
        major, minor, stepping, flags = found.groups()
        if (features := _features(flags)) is not None:
            return RocmArch(int(major), int(minor, 16), int(stepping, 16), features)
    if found := _GENERIC.fullmatch(text):
        major, minor, flags = found.groups()
        if (features := _features(flags)) is not None:
            return RocmArch(int(major), int(minor or 0), 0, features, generic=True)
    examples = ("gfx942", "gfx90a:xnack-") if text.startswith("gfx") else ("9.0", "9.0+PTX")
    expected = " or ".join(map(quote, examples))
    raise ValueError(f"{quote(text)} is not an arch; expected e.g. {expected}")


def backend_of(arch: Arch) -> Backend:
    """Whose GPU it is."""
    return "cuda" if isinstance(arch, CudaArch) else "rocm"


def gencode(arch: Arch) -> list[str]:
    """Flags of nvcc, or of hipcc, that compile for `arch`."""
    if isinstance(arch, RocmArch):
        # Code for several processors exists from this version of code objects on.
        version = ["-mcode-object-version=6"] if arch.generic else []
        return [f"--offload-arch={arch}", *version]
    number = arch.number
    code = f"[sm_{number},compute_{number}]" if arch.ptx else f"sm_{number}"
    return [f"-gencode=arch=compute_{number},code={code}"]


def _features(flags: str) -> tuple[str, ...] | None:
    """The feature flags of a target; None where one is named twice."""
    features = tuple(flags.split(":")[1:])
    return features if len({feature[:-1] for feature in features}) == len(features) else None


def _suffix(text: str) -> Literal["", "a", "f"]:
    return "a" if text == "a" else "f" if text == "f" else ""
