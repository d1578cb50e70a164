"""Another torch, Python, driver, GPU or glibc: the facts that differ after a move.

The rules of the doctor decide about the facts after a move as they do about those of today.
"""

import dataclasses
import re
from collections.abc import Collection, Sequence

from torchwheel.check.torch_symbols import ExportTable
from torchwheel.install.environment import TargetEnvironment
from torchwheel_runtime.arch.devices import Driver, Gpu
from torchwheel_runtime.arch.model import BRANDS, backend_of, parse
from torchwheel_runtime.arch.releases import TorchFacts, gpu_names, torch_releases
from torchwheel_runtime.doctor.case import Package
from torchwheel_runtime.doctor.native import Links, NativeLibrary
from torchwheel_runtime.doctor.package_rules import tags_of
from torchwheel_runtime.doctor.remedies import OF_DRIVER, Bond, bond_of, comes_with, is_of_gpu
from torchwheel_runtime.errors import UsageError
from torchwheel_runtime.machine.facts import Machine, Torch
from torchwheel_runtime.text import join_names, quote
from torchwheel_runtime.validate.at_load import check_driver, tag_floor
from torchwheel_runtime.validate.findings import Finding
from torchwheel_runtime.validate.torch_rules import range_contains
from torchwheel_runtime.versions import major_version, minor_version, version_numbers

_TORCH = re.compile(r"(\d{1,3}\.\d{1,3})(\.\d{1,3})?(?:\+(cpu|cu\d{3}|rocm\d\.\d))?", re.ASCII)
_MINOR = re.compile(r"\d{1,3}\.\d{1,3}", re.ASCII)
_PATCHES = 3
"""Releases of a torch minor that a requirement may name: 2.7.0, 2.7.1 and 2.7.2."""


@dataclasses.dataclass(frozen=True)
class Move:
    """What one would move to; None for what stays.

    Attributes:
        torch: e.g. "2.15", "2.15.1" or "2.15+cu130".
        python: e.g. "3.14".
        driver: the newest CUDA that the driver serves, e.g. "12.8".
        gpu: its arch, e.g. "12.0" or "gfx942".
        glibc: e.g. "2.28".
    """

    torch: str | None = None
    python: str | None = None
    driver: str | None = None
    gpu: str | None = None
    glibc: str | None = None

    def __post_init__(self) -> None:
        """Refuse what is malformed, before anything is read.

        Raises:
            UsageError: a value is malformed, or of a torch that is not known.
        """
        for name in ("python", "driver", "glibc"):
            text = getattr(self, name)
            if text is not None and not _MINOR.fullmatch(text):
                example = {"python": "3.14", "driver": "12.8", "glibc": "2.28"}[name]
                raise UsageError(f"--{name}: expected e.g. {example}, found {quote(text)}")
        if self.torch is not None:
            _parse_torch(self.torch)
        try:
            parse("9.0" if self.gpu is None else self.gpu)
        except ValueError as error:
            raise UsageError(f"--gpu: {error}") from None

    def __bool__(self) -> bool:
        """Whether anything differs after it."""
        return any(dataclasses.astuple(self))


def _parse_torch(text: str) -> tuple[str, str, str | None, TorchFacts]:
    """The minor, the release, the toolkit and the facts of a torch that is moved to."""
    known = torch_releases()
    match = _TORCH.fullmatch(text)
    if match is None or match[1] not in known:
        raise UsageError(
            f"--torch: expected one of {next(iter(known))} to {list(known)[-1]}, alone or as "
            f"2.13+cpu, 2.13+cu130 or 2.12+rocm7.2; found {quote(text)}"
        )
    return match[1], f"{match[1]}{match[2] or '.0'}", match[3], known[match[1]]


def move_machine(machine: TargetEnvironment, move: Move) -> TargetEnvironment:
    """The facts after a move."""
    if move.python:
        platforms = tuple(dict.fromkeys(tag.rpartition("-")[2] for tag in machine.tags))
        marked = {"python_version": move.python, "python_full_version": f"{move.python}.0"}
        machine = dataclasses.replace(
            machine,
            python=f"{move.python}.0",
            tags=tuple(dict.fromkeys(map(str, tags_of(move.python, platforms)))),
            markers={**machine.markers, **marked},
        )
    if move.glibc:
        allowed = version_numbers(move.glibc)
        floors = ((tag, tag_floor([tag.rpartition("-")[2]])) for tag in machine.tags)
        tags = (tag for tag, floor in floors if not floor or version_numbers(floor) <= allowed)
        machine = dataclasses.replace(machine, glibc=move.glibc, tags=tuple(tags))
    if move.gpu:
        arch = parse(move.gpu)
        gpu = Gpu(0, gpu_names().get(arch.name, "a GPU"), arch)
        machine = dataclasses.replace(machine, gpus=(gpu,))
    if move.driver:
        driver = Driver("cuda", "", move.driver)
        machine = dataclasses.replace(machine, driver=driver, driver_problem=None)
    if move.torch:
        machine = dataclasses.replace(machine, torch=_move_torch(machine, move.torch))
    return machine


def _move_torch(machine: TargetEnvironment, text: str) -> Torch:
    """The build of a torch: the one that is named, else of the kind that is here, else PyPI's."""
    minor, release, toolkit, facts = _parse_torch(text)
    here = machine.torch
    if toolkit is None:
        rocm = facts.toolkits["rocm"]
        on_gpu = bool(machine.gpus or machine.driver)
        amd = bool(machine.gpus) and backend_of(machine.gpus[0].arch) == "rocm"
        if rocm and (amd or (here is not None and here.backend == "rocm")):
            toolkit = f"rocm{rocm[-1]}"
        elif here is not None and here.backend is None and not on_gpu:
            toolkit = "cpu"
        else:
            toolkit = f"cu{(facts.pypi or facts.toolkits['cuda'][-1]).replace('.', '')}"
    cuda = f"{toolkit[2:4]}.{toolkit[4:]}" if toolkit.startswith("cu") else None
    hip = toolkit.removeprefix("rocm") if toolkit.startswith("rocm") else None
    for kind, asked in (("cuda", cuda), ("rocm", hip)):
        published = facts.toolkits[kind]  # type: ignore[index]
        if asked and asked not in published:
            raise UsageError(
                f"--torch: torch {minor} was published for {join_names(published) or 'no release'}"
                f" of {kind.upper()}; found {quote(text)}"
            )
    folder = here.folder if here else machine.program.parent
    old = facts.old_strings and toolkit == f"cu{(facts.pypi or '').replace('.', '')}"
    return Torch(f"{release}+{toolkit}", cuda, hip, folder, old_abi=old)


def machine_findings(machine: TargetEnvironment) -> list[Finding]:
    """What keeps torch itself from this Python or driver."""
    torch = machine.torch
    if torch is None:
        return []
    facts, python = torch_releases().get(torch.minor), minor_version(machine.python)
    found = [check_driver("cuda", torch.cuda, machine.driver) if torch.cuda else None]
    if facts and python not in facts.pythons:
        found.append(
            Finding(
                "python",
                expected=f"Python {facts.pythons[0]} to {facts.pythons[-1]}, which torch "
                f"{torch.minor} was published for",
                found=f"Python {python}",
                fix=f"choose another: {_for_python(python)} published for Python {python}",
            )
        )
    return [one for one in found if one]


def _for_python(python: str) -> str:
    minors = [minor for minor, facts in torch_releases().items() if python in facts.pythons]
    return f"{minors[0]} to {minors[-1]} were" if minors else "none is known that was"


def move_package(
    package: Package, machine: TargetEnvironment, move: Move, table: ExportTable
) -> Package:
    """A package with the links of its libraries to the torch that is moved to.

    `machine` has the facts after the move.
    """
    torch = machine.torch
    natives = package.natives
    if move.torch and torch is not None:
        natives = tuple(_move_library(native, torch, table) for native in natives)
    if move.driver:
        natives = tuple(without_absent(native, OF_DRIVER) for native in natives)
    return dataclasses.replace(package, natives=natives)


def without_absent(native: NativeLibrary, present: Collection[str]) -> NativeLibrary:
    """A library for which the loader finds others, e.g. those that its package loads by path."""
    if native.links is None:
        return native
    absent = {name: asker for name, asker in native.links.absent.items() if name not in present}
    return dataclasses.replace(native, links=dataclasses.replace(native.links, absent=absent))


def _move_library(native: NativeLibrary, torch: Torch, table: ExportTable) -> NativeLibrary:
    if native.links is None:
        return native
    links = native.links
    names = links.torch_symbols | links.undefined
    lacking = {name for name in names if _is_lacking(name, links, torch, table)}
    gone = {name for name in native.needed if comes_with(name, torch) is False}
    absent = {name: asker for name, asker in links.absent.items() if not comes_with(name, torch)}
    moved = dataclasses.replace(
        links,
        absent={**absent, **dict.fromkeys(sorted(gone), native.path.name)},
        torch_symbols=frozenset(names - lacking),
        undefined=frozenset(lacking),
        elsewhere=links.elsewhere - lacking,
    )
    return dataclasses.replace(native, links=moved)


def _is_lacking(name: str, links: Links, torch: Torch, table: ExportTable) -> bool:
    """Whether a torch lacks a symbol; what the table does not know stays as it is."""
    releases = table.releases_with(name)
    if not releases:
        return name in links.undefined
    return torch.minor not in releases or (torch.backend is None and is_of_gpu(name))


@dataclasses.dataclass(frozen=True)
class TorchFits:
    """The torch that a package fits.

    Attributes:
        minors: those of PyPI or of PyTorch's index, in order.
        kind: the CUDA or ROCm of its runtime, e.g. " for CUDA 12"; empty for any.
    """

    minors: tuple[str, ...]
    kind: str = ""


def fitting_torches(
    package: Package, natives: Sequence[NativeLibrary], machine: Machine, table: ExportTable
) -> TorchFits | None:
    """The torch minors that the metadata allows, that have all symbols, and have such a build.

    None if the libraries need nothing of torch. `natives` are those that count.
    """
    torch = machine.torch
    if torch is None or not any(native.uses_torch for native in natives):
        return None
    bond = bond_of(package, natives, torch)
    names = {name for native in natives for name in native.torch_names}
    known = [releases for name in names if (releases := table.releases_with(name))]
    fitting = [
        minor
        for minor in table.releases
        if all(minor in releases for releases in known)
        and any(range_contains(bond.range, f"{minor}.{patch}") for patch in range(_PATCHES))
        and _is_published(minor, bond, minor_version(machine.python))
    ]
    kind = f" for {BRANDS[bond.backend]} {bond.major}" if bond.backend and bond.major else ""
    return TorchFits(tuple(fitting), kind)


def _is_published(minor: str, bond: Bond, python: str) -> bool:
    """Whether a torch was published for a Python, with the CUDA or ROCm of a bond."""
    facts = torch_releases().get(minor)
    if facts is None or python not in facts.pythons:
        return False
    if bond.backend is None or bond.major is None:
        return True
    return bond.major in map(major_version, facts.toolkits[bond.backend])
