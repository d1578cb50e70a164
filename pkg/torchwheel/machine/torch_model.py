"""Facts of torch as data, and what stands for a fact that is not there.

Apart from the other facts: the import of an extension asks for these and takes no more time.
"""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from torchwheel.arch.backend import Backend

_Fact = TypeVar("_Fact")


@dataclasses.dataclass(frozen=True)
class Absent:
    """Why a fact is not there, in one line: what every probing function returns in its place."""

    reason: str


def told(found: _Fact | Absent) -> tuple[_Fact | None, str | None]:
    """A fact, or the reason why it is not there."""
    return (None, found.reason) if isinstance(found, Absent) else (found, None)


@dataclasses.dataclass(frozen=True)
class Torch:
    """The torch of this Python.

    Attributes:
        version: e.g. "2.11.0+cu130".
        cuda: the CUDA release it was built with, e.g. "13.0"; None for any other build.
        hip: the HIP release it was built with.
        folder: the package's folder.
        old_abi: whether it was built with libstdc++'s old strings.
    """

    version: str
    cuda: str | None
    hip: str | None
    folder: Path
    old_abi: bool = False

    @property
    def minor(self) -> str:
        """E.g. "2.11"."""
        return ".".join(self.version.split("+")[0].split(".")[:2])

    @property
    def backend(self) -> "Backend | None":
        """The GPUs that it is built for; None for CPUs only."""
        return "rocm" if self.hip else "cuda" if self.cuda else None

    def built_with(self, backend: "Backend | None") -> str | None:
        """The release of `backend`'s toolkit that it was built with; None for another's build."""
        return self.hip if backend == "rocm" else self.cuda
