"""The facts that the doctor judges, and its verdicts."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from torchwheel_runtime.arch.model import Backend
from torchwheel_runtime.doctor.caches import CacheState
from torchwheel_runtime.doctor.dist_info import DistInfo
from torchwheel_runtime.doctor.importing import ImportResult
from torchwheel_runtime.doctor.native import NativeLibrary
from torchwheel_runtime.machine.facts import Machine
from torchwheel_runtime.runtime.status import ExtensionStatus
from torchwheel_runtime.validate.findings import Finding


@dataclasses.dataclass(frozen=True)
class Package:
    """The facts of one package.

    Attributes:
        name: the distribution's name; if it is not installed, the name on the command line.
        module: the module to import, e.g. "torch_scatter".
        root: the folder that it is installed in; None if it is not installed.
        info: the content of its dist-info folder; None if it has none.
        copies: other installed versions of the same distribution.
        near: if it is not installed, names of installed distributions that are similar.
        imported: the result of its import.
        natives: its native libraries.
        status: what its operators run on; None for a package that does not use
            torchwheel_runtime.runtime.
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
        """The native libraries that the import loaded."""
        return tuple(native for native in self.natives if native.loaded)


@dataclasses.dataclass(frozen=True)
class Case:
    """A package on a machine: the input of every rule.

    Attributes:
        hardware: backends of the GPUs on the PCI bus.
        environ: environment variables.
    """

    machine: Machine
    cache: CacheState
    package: Package
    hardware: tuple[Backend, ...] = ()
    environ: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The conclusion on a package, or on a machine that has none.

    Attributes:
        findings: the faults, the first cause first.
        says: one sentence without a full stop.
    """

    findings: tuple[Finding, ...]
    says: str

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings

    @property
    def fix(self) -> str | None:
        """The fix of the first cause; None if nothing is wrong."""
        return self.findings[0].fix if self.findings else None


@dataclasses.dataclass(frozen=True)
class Report:
    """The result of a run of the doctor. Without packages, the verdict is on the machine.

    Attributes:
        variables: the relevant environment variables that are set.
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
