"""What is known of toolkits and torch releases, read from the data files."""

import dataclasses
import functools
from collections.abc import Mapping

from torchwheel import data
from torchwheel.matrix.arch import Backend


@dataclasses.dataclass(frozen=True)
class TorchFacts:
    """What one torch minor was published for."""

    toolkits: Mapping[Backend, tuple[str, ...]]
    """Releases of CUDA and ROCm, e.g. {"cuda": ("12.6", "13.0"), …}."""
    pythons: tuple[str, ...]

    def majors(self, backend: Backend) -> tuple[int, ...]:
        """Major releases; minors of one major are compatible with each other."""
        return tuple(sorted({int(version.split(".")[0]) for version in self.toolkits[backend]}))


@functools.cache
def archs(backend: Backend) -> Mapping[str, tuple[str, ...]]:
    """Archs that each release of a toolkit can compile, e.g. {"13.0": ("7.5", …), …}."""
    return {version: tuple(names) for version, names in data.read("archs.json")[backend].items()}


@functools.cache
def torch_releases() -> Mapping[str, TorchFacts]:
    """Known torch minors, oldest first."""
    return {
        minor: TorchFacts(
            toolkits={"cuda": tuple(facts["cuda"]), "rocm": tuple(facts["rocm"])},
            pythons=tuple(facts["pythons"]),
        )
        for minor, facts in data.read("torch_releases.json").items()
        if minor != "comment"
    }
