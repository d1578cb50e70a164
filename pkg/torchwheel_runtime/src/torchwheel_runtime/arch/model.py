"""GPU backends and architectures: how a matrix and a binary write them, and compiler flags.

It imports the standard library only, because an extension's `setup.py` imports it.
"""

import dataclasses
import functools
import re
from collections.abc import Mapping
from typing import ClassVar, Literal

from torchwheel_runtime.text import quote
from torchwheel_runtime.versions import major_version

Backend = Literal["cuda", "rocm"]

BRANDS: Mapping[Backend, str] = {"cuda": "CUDA", "rocm": "ROCm"}
# ROCm's number was HIP's, which is in the soname of libamdhip64, until ROCm 10 came with HIP 7.
_HIP_OF_ROCM = {"10": "7"}
"""Names of the backends in messages."""

CUDA_PATTERN = r"[1-9][0-9]?\.[0-9][af]?(\+PTX)?"
ROCM_PATTERN = r"gfx[1-9][0-9]?([0-9a-f]{2}|(-[1-9])?-generic)(:[a-z]+[+-])*"

_CUDA = re.compile(r"([1-9][0-9]?)\.([0-9])([af]?)(\+PTX)?", re.ASCII)
_FEATURES = r"((?::[a-z]+[+-])*)"
_ROCM = re.compile(rf"gfx([1-9][0-9]?)([0-9a-f])([0-9a-f]){_FEATURES}", re.ASCII)
_GENERIC = re.compile(rf"gfx([1-9][0-9]?)(?:-([1-9]))?-generic{_FEATURES}", re.ASCII)
_SM = re.compile(r"sm_([1-9][0-9]?)([0-9][af]?)", re.ASCII)


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
        """The arch without PTX, e.g. "9.0a", as a compiler's list of archs has it."""
        return f"{self.major}.{self.minor}{self.suffix}"

    @property
    def number(self) -> str:
        """The digits that nvcc's flags have, e.g. "90a"."""
        return f"{self.major}{self.minor}{self.suffix}"

    @property
    def binary_name(self) -> str:
        """The name that a binary has for its machine code or PTX, e.g. "sm_90a"."""
        return f"sm_{self.number}"

    @property
    def in_binary(self) -> "CudaArch":
        """The arch of its machine code or PTX, which does not tell whether both are there."""
        return self.with_ptx(False)

    @property
    def of_gpu(self) -> "CudaArch":
        """The arch as a GPU has it: "9.0" for "9.0a"."""
        return CudaArch(self.major, self.minor)

    def with_ptx(self, ptx: bool = True) -> "CudaArch":
        """The same arch, with PTX or without."""
        return dataclasses.replace(self, ptx=ptx)


@dataclasses.dataclass(frozen=True, order=True)
class RocmArch:
    """An AMD GPU target: "gfx942", "gfx90a:xnack-", or for several at once: "gfx9-4-generic"."""

    major: int
    minor: int
    stepping: int
    features: tuple[str, ...] = ()
    generic: bool = False
    ptx: ClassVar[bool] = False
    """AMD has no PTX."""

    def __str__(self) -> str:
        return ":".join((self.name, *self.features))

    @property
    def name(self) -> str:
        """The target without features, e.g. "gfx90a", as a compiler's list of archs has it."""
        if self.generic:
            return f"gfx{self.major}{f'-{self.minor}' if self.minor else ''}-generic"
        return f"gfx{self.major}{self.minor:x}{self.stepping:x}"

    @property
    def binary_name(self) -> str:
        """The name that a binary has for its machine code, e.g. "gfx90a:sramecc+:xnack-"."""
        return str(self.in_binary)

    @property
    def in_binary(self) -> "RocmArch":
        """The arch of its machine code, whose features are in alphabetical order."""
        return dataclasses.replace(self, features=tuple(sorted(self.features)))

    def with_ptx(self, ptx: bool = True) -> "RocmArch":  # noqa: ARG002 - as CudaArch has it
        """The same arch, because AMD has no PTX."""
        return self


Arch = CudaArch | RocmArch


@functools.lru_cache(maxsize=1000)  # a catalogue names the same archs for each wheel
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


def parse_binary_name(text: str) -> Arch:
    """Read an arch as a binary names it, e.g. "sm_90a" or "gfx90a:xnack-", or a ValueError."""
    return parse(_SM.sub(r"\1.\2", text))


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


def runtime_major(backend: Backend, release: str) -> str:
    """The major of a toolkit's runtime library, which its soname has: "7" of ROCm 10.1."""
    major = major_version(release)
    return _HIP_OF_ROCM.get(major, major) if backend == "rocm" else major
