"""Which archs each release of a toolkit can compile, read from the data file."""

import dataclasses
import functools
import re
from collections.abc import Mapping

from torchwheel import data
from torchwheel.arch.model import BRANDS, Arch, Backend, parse
from torchwheel.errors import UsageError
from torchwheel.text import quote
from torchwheel.versions import version_numbers

_RELEASE = re.compile(r"\d{1,4}(\.\d{1,9})+", re.ASCII)


@functools.cache
def archs_by_release(backend: Backend) -> Mapping[str, tuple[str, ...]]:
    """Archs that each release of a toolkit can compile, e.g. {"13.0": ("7.5", …), …}."""
    return {version: tuple(names) for version, names in data.read("archs.json")[backend].items()}


@functools.cache
def arch_names(backend: Backend) -> tuple[str, ...]:
    """Every arch that some release can compile, in order."""
    every = {name for known in archs_by_release(backend).values() for name in known}
    return tuple(str(arch) for arch in sorted(map(parse, every)))


@dataclasses.dataclass(frozen=True)
class Compiler:
    """A release of a toolkit, e.g. CUDA "13.0" or "13.0.88"."""

    backend: Backend
    release: str

    def __str__(self) -> str:
        return f"{BRANDS[self.backend]} {self.release}"

    @property
    def archs(self) -> tuple[Arch, ...]:
        """What it can compile; a release that is not in the table can what the one before could.

        Raises:
            UsageError: the release is none, or older than the table.
        """
        known = archs_by_release(self.backend)
        if not _RELEASE.fullmatch(self.release):
            brand = BRANDS[self.backend]
            raise UsageError(
                f'{quote(self.release)} is no release of {brand}; expected e.g. "13.0"'
            )
        older = [
            version
            for version in known
            if version_numbers(version) <= version_numbers(self.release)
        ]
        if not older:
            raise UsageError(f"{self} is too old: {next(iter(known))} or later expected")
        return tuple(map(parse, known[older[-1]]))


def releases_able(arch: Arch, backend: Backend) -> str:
    """The releases that can compile an arch, e.g. "CUDA 11.8 to 12.9"."""
    known = archs_by_release(backend)
    found = [version for version, listed in known.items() if arch.name in listed]
    if not found:
        return "none that is known"
    if found[-1] == list(known)[-1]:
        return f"{BRANDS[backend]} {found[0]} and later"
    return f"{BRANDS[backend]} {found[0]}" + (f" to {found[-1]}" if len(found) > 1 else "")
