"""Facts of torch releases, read from the data file."""

import dataclasses
import functools
from collections.abc import Mapping

from torchwheel_runtime import data
from torchwheel_runtime.arch.model import Backend
from torchwheel_runtime.versions import version_numbers


@dataclasses.dataclass(frozen=True)
class TorchFacts:
    """The toolkits and Pythons that a torch minor was published for, and what PyPI has of it."""

    toolkits: Mapping[Backend, tuple[str, ...]]
    """Releases of CUDA and ROCm, e.g. {"cuda": ("12.6", "13.0"), …}."""
    pythons: tuple[str, ...]
    pypi: str | None = None
    """The release of CUDA that PyPI's build for Linux has."""
    old_strings: bool = False
    """Whether PyPI's build has libstdc++'s strings of before GCC 5."""

    def majors(self, backend: Backend) -> tuple[int, ...]:
        """The major releases; the minors of a major are compatible with each other."""
        return tuple(sorted({version_numbers(version)[0] for version in self.toolkits[backend]}))


@functools.cache
def torch_releases() -> Mapping[str, TorchFacts]:
    """Known torch minors, oldest first."""
    return {
        minor: TorchFacts(
            toolkits={"cuda": tuple(facts["cuda"]), "rocm": tuple(facts["rocm"])},
            pythons=tuple(facts["pythons"]),
            pypi=facts["pypi"],
            old_strings=facts.get("old_strings", False),
        )
        for minor, facts in data.read("torch_releases.json").items()
        if minor != "comment"
    }
