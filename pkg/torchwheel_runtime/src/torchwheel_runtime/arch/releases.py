"""Releases of CUDA, ROCm and torch: the archs that a toolkit compiles, the toolkits of a torch."""

import dataclasses
import functools
import re
from collections.abc import Mapping
from typing import Literal

from torchwheel_runtime import data
from torchwheel_runtime.arch.model import BRANDS, Arch, Backend, RocmArch, parse
from torchwheel_runtime.errors import UsageError
from torchwheel_runtime.text import quote
from torchwheel_runtime.versions import version_numbers

_VERSION = re.compile(r"\d{1,4}(\.\d{1,9})+", re.ASCII)


@functools.cache
def archs_by_release(of: Backend | Literal["torch"]) -> Mapping[str, tuple[str, ...]]:
    """Archs that each release of a toolkit can compile, e.g. {"13.0": ("7.5", …), …}.

    Of torch: the archs that its BuildExtension takes in TORCH_CUDA_ARCH_LIST.
    """
    return {version: tuple(names) for version, names in data.read("archs.json")[of].items()}


@functools.cache
def arch_names(backend: Backend) -> tuple[str, ...]:
    """Every arch that some release can compile, in order."""
    names = {name for archs in archs_by_release(backend).values() for name in archs}
    return tuple(str(arch) for arch in sorted(map(parse, names)))


@functools.cache
def gpu_names() -> Mapping[str, str]:
    """What people call a GPU of an arch: {"9.0": "H100", "gfx942": "MI300", …}."""
    return dict(data.read("arch_names.json")["gpus"])


@dataclasses.dataclass(frozen=True)
class ToolkitRelease:
    """A release of a toolkit, e.g. CUDA "13.0" or "13.0.88"."""

    backend: Backend
    version: str

    def __str__(self) -> str:
        return f"{BRANDS[self.backend]} {self.version}"

    @property
    def name(self) -> str:
        """The usual name of a toolkit of this release: "cu130" or "rocm6.4"."""
        if self.backend == "cuda":
            return f"cu{self.version.replace('.', '')}"
        return f"rocm{self.version}"

    @property
    def archs(self) -> tuple[Arch, ...]:
        """The archs it can compile. A release that the table lacks counts as the one before it.

        Raises:
            UsageError: the version is malformed, or older than the table.
        """
        table = archs_by_release(self.backend)
        if not _VERSION.fullmatch(self.version):
            brand = BRANDS[self.backend]
            raise UsageError(
                f'{quote(self.version)} is no release of {brand}; expected e.g. "13.0"'
            )
        listed = _last_listed(table, self.version)
        if not listed:
            raise UsageError(f"{self} is too old: {next(iter(table))} or later expected")
        return tuple(map(parse, table[listed]))


def _last_listed(table: Mapping[str, tuple[str, ...]], version: str) -> str:
    """The last release of a table that is not newer than a version; empty for an older one."""
    numbers = version_numbers(version)
    older = [listed for listed in table if version_numbers(listed) <= numbers]
    return older[-1] if older else ""


def releases_able(arch: Arch, backend: Backend) -> str:
    """The releases that can compile an arch, e.g. "CUDA 11.8 to 12.9"."""
    table = archs_by_release(backend)
    able = [version for version, names in table.items() if arch.name in names]
    if not able:
        return "none that is known"
    if able[-1] == list(table)[-1]:
        return f"{BRANDS[backend]} {able[0]} and later"
    return f"{BRANDS[backend]} {able[0]}" + (f" to {able[-1]}" if len(able) > 1 else "")


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
    cxx: int = 17
    """The C++ standard that its headers need, e.g. 20; those of the stable ABI need 17."""
    archs: tuple[str, ...] = ()
    """What its BuildExtension takes in TORCH_CUDA_ARCH_LIST; it refuses "8.8" and families."""

    def takes(self, arch: Arch) -> bool:
        """Whether its BuildExtension reads an arch; it has no list of AMD's."""
        return isinstance(arch, RocmArch) or arch.name in self.archs

    def majors(self, backend: Backend) -> tuple[int, ...]:
        """The major releases; the minors of a major are compatible with each other."""
        return tuple(sorted({version_numbers(version)[0] for version in self.toolkits[backend]}))


def cxx_standard(minor: str | None) -> int:
    """The C++ standard that a torch's headers need: one that is not known needs the newest's."""
    known = torch_releases()
    newest = list(known.values())[-1]
    return known.get(minor, newest).cxx if minor else TorchFacts.cxx


@functools.cache
def torch_releases() -> Mapping[str, TorchFacts]:
    """Known torch minors, oldest first."""
    archs = archs_by_release("torch")
    return {
        minor: TorchFacts(
            toolkits={"cuda": tuple(facts["cuda"]), "rocm": tuple(facts["rocm"])},
            pythons=tuple(facts["pythons"]),
            pypi=facts["pypi"],
            old_strings=facts.get("old_strings", False),
            cxx=facts.get("cxx", TorchFacts.cxx),
            archs=archs[_last_listed(archs, minor)],
        )
        for minor, facts in data.read("torch_releases.json").items()
        if minor != "comment"
    }
