"""What the doctor knows of a package, and what it says."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from torchwheel.arch.model import Backend
from torchwheel.doctor.caches import CacheState
from torchwheel.doctor.dist_info import DistInfo
from torchwheel.doctor.importing import ImportResult
from torchwheel.doctor.native import NativeLibrary
from torchwheel.machine.facts import Machine
from torchwheel.runtime.status import ExtensionStatus


@dataclasses.dataclass(frozen=True)
class Package:
    """One package, examined.

    Attributes:
        name: the distribution's name, else as it was asked for.
        module: what is imported, e.g. "torch_scatter".
        root: the folder it is installed in; None if it is not.
        info: what its dist-info says; None if it has none.
        copies: versions of the same distribution that are there as well.
        near: names of installed distributions like the one asked for, where that is not there.
        imported: how its import went.
        natives: its native libraries.
        status: what its operators run on; None if its run-time half is not torchwheel's.
    """

    name: str
    module: str
    root: Path | None
    info: DistInfo | None
    imported: ImportResult
    copies: tuple[str, ...] = ()
    near: tuple[str, ...] = ()
    natives: tuple[NativeLibrary, ...] = ()
    status: ExtensionStatus | None = None

    @property
    def title(self) -> str:
        """Name and version, e.g. "fusedops 1.0.0+cu130"."""
        return f"{self.name} {self.info.version}" if self.info else self.name

    @property
    def loaded(self) -> tuple[NativeLibrary, ...]:
        """The libraries that its import loaded."""
        return tuple(native for native in self.natives if native.loaded)


@dataclasses.dataclass(frozen=True)
class Case:
    """A package on a machine: all that the rules look at.

    Attributes:
        hardware: whose GPUs are on the PCI bus.
        environ: environment variables.
    """

    machine: Machine
    cache: CacheState
    package: Package
    hardware: tuple[Backend, ...] = ()
    environ: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """Something that is wrong.

    Attributes:
        name: of the rule that found it, e.g. "glibc".
        says: one sentence, without the stop.
        fix: a command in backquotes, or what to do where no command does it.
    """

    name: str
    says: str
    fix: str


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The last word on a package, or on a machine without one.

    Attributes:
        findings: what is wrong, the first cause first.
        says: one sentence, without the stop.
        fix: what to do; None where nothing is wrong.
    """

    findings: tuple[Diagnosis, ...]
    says: str
    fix: str | None = None

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings


@dataclasses.dataclass(frozen=True)
class Report:
    """All that a run of the doctor found; without a package the machine alone has a verdict.

    Attributes:
        variables: environment variables that are set and matter.
    """

    machine: Machine
    variables: Mapping[str, str]
    cache: CacheState
    packages: tuple[Package, ...]
    verdicts: tuple[Verdict, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong with any package."""
        return all(verdict.ok for verdict in self.verdicts)
