"""`torchwheel doctor --all`: every package with native code, here and after a move.

No package is imported: their files are read.
"""

import argparse
import contextlib
import dataclasses
import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from torchwheel.check.torch_symbols import ExportTable, export_table
from torchwheel.inspect.library_facts import read_targets
from torchwheel.install import packages_text
from torchwheel.install.environment import TargetEnvironment, find_environment
from torchwheel.install.moves import (
    Move,
    TorchFits,
    fitting_torches,
    machine_findings,
    move_machine,
    move_package,
    without_absent,
)
from torchwheel.install.plan import choose
from torchwheel_runtime.arch.model import Backend
from torchwheel_runtime.console import Progress, Quiet, Terminal
from torchwheel_runtime.doctor import dist_info
from torchwheel_runtime.doctor.case import CacheState, Case, Package
from torchwheel_runtime.doctor.examine import backends_on_pci_bus
from torchwheel_runtime.doctor.importing import ImportResult
from torchwheel_runtime.doctor.native import (
    Loader,
    NativeLibrary,
    is_of_torch,
    read_all_code,
    read_native,
)
from torchwheel_runtime.doctor.package_rules import fault_count
from torchwheel_runtime.doctor.verdict import judge
from torchwheel_runtime.errors import TorchwheelError, UsageError
from torchwheel_runtime.fetch import Fetch, Fetcher, check_address
from torchwheel_runtime.inspect.elf import GpuCode
from torchwheel_runtime.inspect.packing import NoZstdError
from torchwheel_runtime.inspect.window import CpuTime
from torchwheel_runtime.machine.facts import Torch, other_backend
from torchwheel_runtime.text import hide_secrets, nearest, quote
from torchwheel_runtime.validate.findings import Finding
from torchwheel_runtime.versions import minor_version

_BACKEND = re.compile(r"(?<=_)(?:cpu|cuda|cu|rocm|hip|xpu|hpu|npu|mps)\d*(?![a-z])")
_NUMBER = re.compile(r"\d+")
_FOR_ONE_PYTHON = re.compile(r"\.(?:cpython-|cp)(\d{2,3})t?-[\w-]+\.so$", re.ASCII)
State = Literal["breaks", "wrong", "fixed", "works", "of torch"]


@dataclasses.dataclass(frozen=True)
class PackageVerdict:
    """A package on this machine and after a move.

    Attributes:
        package: its facts.
        now: what is wrong with it here.
        then: what is wrong with it after the move; the same without a move.
        fits: the torch that it fits; None if it needs none.
        of_torch: whether torch brings it, so that pip replaces it with torch; it is not judged.
        offer: what an index has in its place.
    """

    package: Package
    now: tuple[Finding, ...] = ()
    then: tuple[Finding, ...] = ()
    fits: TorchFits | None = None
    of_torch: bool = False
    offer: str | None = None

    @property
    def state(self) -> State:
        """What a move does to it."""
        if self.of_torch:
            return "of torch"
        if self.now:
            return "wrong" if self.then else "fixed"
        return "breaks" if self.then else "works"


def run_doctor_on_all(options: argparse.Namespace) -> int:
    """Carry out the command. Exit status: 0 if nothing is wrong, after the move if there is one."""
    move = Move(options.torch, options.python, options.driver, options.gpu, options.glibc)
    if options.all == bool(options.package):
        found = "both" if options.all else "neither"
        raise UsageError(f"doctor: expected --all or names of packages, found {found}")
    if options.index:
        check_address(options.index)
    terminal = Terminal()
    shown = terminal.is_live and not options.quiet
    with terminal.live_line() if shown else contextlib.nullcontext(Quiet()) as progress:
        here = find_environment(None)
        there = move_machine(here, move)
        packages = read_packages(options.package, here, progress)
        verdicts = judge_packages(packages, here, there, move, export_table())
        if options.index:
            verdicts = add_offers(verdicts, options.index, there, Fetcher(), progress)
    own = machine_findings(there)
    if options.json:
        print(packages_text.report_json(verdicts, here, there, own))
    else:
        how = {"quiet": options.quiet, "verbose": options.verbose}
        print("\n".join(packages_text.report_lines(verdicts, here, there, own, **how)))
    return int(bool(own) or any(one.then for one in verdicts))


def read_packages(
    names: Sequence[str], machine: TargetEnvironment, progress: Progress
) -> list[Package]:
    """The packages with native libraries but torch itself: all, or those that are named.

    Raises:
        UsageError: a name is of no package with native libraries.
    """
    folders = dist_info.dist_infos()
    known = sorted(set(map(dist_info.name_key, folders)))
    loader = Loader(machine.program, machine.torch.folder if machine.torch else None, os.environ)
    present = frozenset(_library_names(folders))
    packages = []
    for name in names or [name for name in known if name != "torch"]:
        found = dist_info.find_distribution(name, folders)
        if not found:
            expected = f"{quote(name)}: expected a package of this Python, found none"
            raise UsageError(f"{expected}; {nearest(name, known, '`pip list` names them')}")
        progress.step(f"reading {found[0].stem}")
        if package := _read_package(found, loader, present):
            packages.append(package)
        elif names:
            raise UsageError(f"{quote(name)}: expected native libraries, found none in it")
    return packages


def _library_names(folders: Iterable[Path]) -> Iterator[str]:
    for folder in folders:
        for file in dist_info.read_dist_info(folder).files:
            if ".so" in file.suffixes:
                yield file.name


def _read_package(
    found: Sequence[Path], loader: Loader, present: Collection[str]
) -> Package | None:
    """A package by its files; None without a native library.

    `present` are names of the libraries of all packages, which one may load by their paths.
    """
    info = dist_info.read_dist_info(found[0])
    root, cpu = found[0].parent.resolve(), CpuTime()
    natives = [
        read_native(path, root, loader, info.claims, cpu, loaded=False, read_code=_read_code)
        for path in dist_info.native_libraries(root, info, ())
    ]
    if not natives:
        return None
    return Package(
        name=info.name,
        module=next(iter(info.packages), info.name),
        root=root,
        info=info,
        imported=ImportResult("not tried"),
        copies=tuple(dist_info.read_dist_info(folder).version for folder in found[1:]),
        natives=tuple(_with_torchs_symbols(without_absent(one, present)) for one in natives),
    )


def _read_code(path: Path, cpu: CpuTime) -> tuple[GpuCode, ...]:
    """The GPU code of a library, whose kernels are not named: their names take minutes to read."""
    try:
        targets = read_targets(path, cpu)
    except NoZstdError:
        return read_all_code(path, cpu)
    return tuple(GpuCode(one.kind, one.arch, ("",) if one.is_code else ()) for one in targets)


def _with_torchs_symbols(native: NativeLibrary) -> NativeLibrary:
    """A library without those undefined symbols that another library of a package may have."""
    if native.links is None:
        return native
    own = frozenset(filter(is_of_torch, native.links.undefined))
    return dataclasses.replace(native, links=dataclasses.replace(native.links, undefined=own))


def libraries_in_use(
    natives: Iterable[NativeLibrary], torch: Torch | None, python: str
) -> tuple[NativeLibrary, ...]:
    """The libraries that a package loads, as far as names and GPU code tell.

    Of those whose names differ in a backend or in numbers some lie idle: those for another Python,
    those for GPUs that torch is not for, and of several releases of CUDA or of FFmpeg all but one.
    """
    groups: dict[str, list[NativeLibrary]] = {}
    for native in natives:
        groups.setdefault(_NUMBER.sub("#", _BACKEND.sub("#", native.name)), []).append(native)
    chosen: dict[str, list[NativeLibrary]] = {}
    for group in groups.values():
        for native in [one for one in group if _serves(one, torch, python)] or group:
            chosen.setdefault(_NUMBER.sub("#", native.name), []).append(native)
    return tuple(min(alike, key=fault_count) for alike in chosen.values())


def _serves(native: NativeLibrary, torch: Torch | None, python: str) -> bool:
    other, backend = (torch.other, torch.backend) if torch else (None, None)
    named = other_backend(native.path.name)
    return named == other and native.backend in (None, backend) and _is_for(native, python)


def _is_for(native: NativeLibrary, python: str) -> bool:
    """Whether a Python imports a library, by its name; any other library is loaded by its path."""
    match = _FOR_ONE_PYTHON.search(native.path.name) if native.is_module else None
    return match is None or match[1] == minor_version(python).replace(".", "")


def judge_packages(
    packages: Iterable[Package],
    here: TargetEnvironment,
    there: TargetEnvironment,
    move: Move,
    table: ExportTable,
) -> list[PackageVerdict]:
    """Hold each package against the machine as it is and as it would be."""
    brought, hardware = _brought_by_torch(), backends_on_pci_bus()
    verdicts = []
    for package in packages:
        if canonicalize_name(package.name) in brought:
            verdicts.append(PackageVerdict(package, of_torch=True))
            continue
        now = then = _findings(package, here, hardware)
        if move:
            then = _findings(move_package(package, there, move, table), there, hardware)
        used = libraries_in_use(package.natives, here.torch, here.python)
        fits = fitting_torches(package, used, there, table)
        verdicts.append(PackageVerdict(package, now, then, fits))
    return verdicts


def _brought_by_torch() -> frozenset[str]:
    """The distributions that torch requires: Triton, and CUDA's, also by way of another."""
    folders = dist_info.dist_infos()
    required = frozenset[str]()
    for asker in ("torch", "cuda-toolkit"):
        for folder in dist_info.find_distribution(asker, folders)[:1]:
            required |= dist_info.read_dist_info(folder).requires
    return required


def _findings(
    package: Package, machine: TargetEnvironment, hardware: tuple[Backend, ...]
) -> tuple[Finding, ...]:
    used = libraries_in_use(package.natives, machine.torch, machine.python)
    own = dataclasses.replace(package, natives=used)
    cache = CacheState(Path(os.devnull))
    found = judge(Case(machine, cache, own, hardware, os.environ)).findings
    return (*found, *_python_findings(own, machine.python))


def _python_findings(package: Package, python: str) -> Iterator[Finding]:
    """A module for one Python in a wheel that its tags say is for several."""
    minor = minor_version(python)
    for native in package.natives:
        if not _is_for(native, python):
            says = f"{native.name} is for another Python than {minor}, by its name"
            yield Finding("python", says, fix=f"install a wheel of {package.name} for {minor}")


def add_offers(
    verdicts: Iterable[PackageVerdict],
    index: str,
    there: TargetEnvironment,
    fetch: Fetch,
    progress: Progress,
) -> list[PackageVerdict]:
    """Ask an index for a wheel in place of each one that is wrong after the move."""
    answered = []
    for one in verdicts:
        offer = None
        if one.then:
            progress.step(f"asking the index for {one.package.name}")
            offer = _offer(one, index, there, fetch)
        answered.append(dataclasses.replace(one, offer=offer))
    return answered


def _offer(one: PackageVerdict, index: str, there: TargetEnvironment, fetch: Fetch) -> str:
    """Another wheel that fits, as far as names and metadata tell: for a Python, or of a version."""
    package, address = one.package, hide_secrets(index)
    version = package.info.version if package.info else "0"
    other = "" if one.then[0].rule == "python" else f"!={version}"
    try:
        wanted = Requirement(f"{package.name}{other}")
        accepted = choose(index, wanted, there, fetch).accepted
    except (TorchwheelError, InvalidRequirement) as error:
        return str(error)
    wheel = accepted[0].candidate if accepted else None
    known = bool(accepted and accepted[0].needs.torch) or one.fits is None
    if wheel is None or (other and not known and wheel.version < _version(version)):
        return f"{address} has no other wheel for it; `torchwheel build {package.name}` builds one"
    command = f"torchwheel install {package.name}=={wheel.version} --index {address}"
    if known:
        return f"`{command}` takes {wheel.file}"
    return f"`{command}` reads {wheel.file}, of whose torch the index says nothing"


def _version(text: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion:
        return Version("0")
