"""The facts that the doctor judges, also those of torchwheel's cache, and its verdicts."""

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path

from torchwheel_runtime.arch.model import Backend
from torchwheel_runtime.claims import Claims
from torchwheel_runtime.doctor.dist_info import DistInfo
from torchwheel_runtime.doctor.importing import ImportResult
from torchwheel_runtime.doctor.native import NativeLibrary
from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.jit.key import CacheKey
from torchwheel_runtime.jit.lookup import CorruptError
from torchwheel_runtime.jit.store import fault_of, folder_size, list_items
from torchwheel_runtime.machine.facts import Machine
from torchwheel_runtime.os_errors import explain
from torchwheel_runtime.ownership import UntrustedError, trusted_path
from torchwheel_runtime.runtime.status import ExtensionStatus
from torchwheel_runtime.toolkit.cache import cache_path
from torchwheel_runtime.validate.findings import Finding


@dataclasses.dataclass(frozen=True)
class CacheState:
    """The state of torchwheel's cache.

    Attributes:
        folder: its folder, which need not exist yet.
        sizes: bytes of each part, e.g. "toolkits" and "jit", the largest first.
        problem: why the cache cannot be written; None if it can.
        corrupt: libraries built just in time that are not as they were written, and which file of
            each is wrong and why.
    """

    folder: Path
    sizes: Mapping[str, int] = dataclasses.field(default_factory=dict)
    problem: str | None = None
    corrupt: Mapping[CacheKey, str] = dataclasses.field(default_factory=dict)


def examine_cache() -> CacheState:
    """Examine the cache without any change to it."""
    try:
        folder = cache_path()
    except TorchwheelError as error:  # a user without a home folder
        return CacheState(Path(os.devnull), problem=str(error))
    return CacheState(
        folder, _part_sizes(folder), _write_problem(folder), _corrupt_libraries(folder / "jit")
    )


def _part_sizes(folder: Path) -> dict[str, int]:
    try:
        parts = [path for path in folder.iterdir() if path.is_dir()]
    except OSError:
        return {}
    sizes = ((part.name, folder_size(part)) for part in parts)
    return dict(sorted(((n, s) for n, s in sizes if s), key=lambda part: (-part[1], part[0])))


def _write_problem(folder: Path) -> str | None:
    """Why the folder cannot be written or made, judged by its nearest existing parent."""
    try:
        existing = next(path for path in (folder, *folder.parents) if _is_there(path))
    except OSError as error:
        return explain(error)
    if not existing.is_dir():
        return f"{existing} is not a folder"
    if not os.access(existing, os.W_OK | os.X_OK):
        return f"{existing} cannot be written"
    try:
        trusted_path(existing)
    except UntrustedError as error:
        return str(error)
    return None


def _is_there(path: Path) -> bool:
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _corrupt_libraries(folder: Path) -> dict[CacheKey, str]:
    try:
        items = list_items(folder)
    except OSError:
        return {}
    faults = ((item.key, fault_of(folder, item)) for item in items)
    return {
        key: f"{key.target}/{fault.path.name}: {fault.why}"
        for key, fault in faults
        if isinstance(fault, CorruptError)
    }


@dataclasses.dataclass(frozen=True)
class Package:
    """The facts of one package.

    Attributes:
        name: the distribution's name; if it is not installed, the name on the command line.
        module: the module to import, e.g. "torch_scatter".
        root: the folder that it is installed in; None if it is not installed.
        info: the content of its metadata; None if it has none.
        copies: other installed versions of the same distribution.
        near: if it is not installed, names of installed distributions that are similar.
        imported: the result of its import.
        natives: its native libraries.
    """

    name: str
    module: str
    root: Path | None
    info: DistInfo | None
    imported: ImportResult
    copies: tuple[str, ...] = ()
    near: tuple[str, ...] = ()
    natives: tuple[NativeLibrary, ...] = ()

    @property
    def status(self) -> ExtensionStatus | None:
        """What its operators run on; None for a package that is not loaded by the run-time half."""
        return self.imported.status

    @property
    def title(self) -> str:
        """Name and version, e.g. "fusedops 1.0.0+cu130"."""
        return f"{self.name} {self.info.version}".strip() if self.info else self.name

    @property
    def claims(self) -> Claims | None:
        """The claims of its wheel."""
        return self.info.claims if self.info else None

    @property
    def torch_range(self) -> str:
        """The range of torch that its claims name, else its metadata; empty for any."""
        if self.claims:
            return self.claims.torch_range
        return (self.info.torch if self.info else None) or ""

    @property
    def has_kernels(self) -> bool:
        """Whether it has or builds code for GPUs."""
        return self.status is not None or any(native.backend for native in self.natives)

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


OWN_PREFIX = "TORCHWHEEL_"
"""What torchwheel's own environment variables begin with."""


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
