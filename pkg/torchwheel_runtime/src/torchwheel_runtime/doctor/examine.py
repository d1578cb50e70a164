"""Examines the machine and packages on it, and judges them."""

import dataclasses
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from torchwheel_runtime.arch.model import Backend
from torchwheel_runtime.console import Progress
from torchwheel_runtime.doctor import dist_info
from torchwheel_runtime.doctor.case import OWN_PREFIX, Case, Package, Report, examine_cache
from torchwheel_runtime.doctor.importing import import_package
from torchwheel_runtime.doctor.native import Loader, NativeLibrary, read_native
from torchwheel_runtime.doctor.package_rules import irregular_text
from torchwheel_runtime.doctor.verdict import judge, judge_machine
from torchwheel_runtime.inspect.window import CpuTime
from torchwheel_runtime.machine.discovery import find_machine
from torchwheel_runtime.machine.facts import Absent, Machine
from torchwheel_runtime.machine.torch import import_problem

_SHORT_SECONDS = 5
"""Time limit of an import after one that hung, or where it is known what it may wait for."""
_OTHER_VARIABLES = (
    *("CUDA_HOME", "ROCM_PATH", "CXX", "TORCH_CUDA_ARCH_LIST", "PYTORCH_ROCM_ARCH"),
    *("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"),
    *("LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH", "CONDA_PREFIX"),
)


def relevant_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """The relevant variables that are set, torchwheel's own first."""
    own = sorted(name for name in environ if name.startswith(OWN_PREFIX))
    return {name: environ[name] for name in (*own, *_OTHER_VARIABLES) if name in environ}


_VENDORS: dict[str, Backend] = {"0x10de": "cuda", "0x1002": "rocm"}
_DISPLAY_CLASS = "0x03"
"""The PCI class of display controllers, which includes 3D accelerators."""


def backends_on_pci_bus(root: Path = Path("/")) -> tuple[Backend, ...]:
    """Backends of the display controllers on the PCI bus, with or without a driver.

    A virtual machine may show none, and an AMD one may only drive a screen.
    """
    found: set[Backend] = set()
    for device in (root / "sys/bus/pci/devices").glob("*"):
        try:
            kind = (device / "class").read_text(encoding="ascii").strip()
            vendor = (device / "vendor").read_text(encoding="ascii").strip()
        except (OSError, ValueError):
            continue
        if kind.startswith(_DISPLAY_CLASS) and vendor in _VENDORS:
            found.add(_VENDORS[vendor])
    return tuple(sorted(found))


def examine_packages(names: Sequence[str], progress: Progress, seconds: float) -> Report:
    """Examine this machine and packages on it, by default those that torchwheel built.

    Each import has `seconds`.
    """
    progress.step("looking at Python, torch, the driver, GPUs, compilers and toolkits")
    machine, cache = find_machine(), examine_cache()
    folders = dist_info.dist_infos()
    waited_for = dist_info.irregular_entry_points(folders)
    limit = min(seconds, _SHORT_SECONDS) if waited_for else seconds
    packages: list[Package] = []
    for name in names or dist_info.distributions_with_claims(folders):
        packages.append(examine_package(name, machine, progress, limit))
        if packages[-1].imported.how == "hung":
            limit = min(limit, _SHORT_SECONDS)
    # An import of torch takes seconds, so an import of a package that includes it is enough.
    if machine.torch and not any(package.imported.torch for package in packages):
        progress.step("importing torch")
        problem = import_problem(limit)
        if problem and problem.problem and waited_for:
            says = f"{problem.reason}; {irregular_text(waited_for[0])}"
            problem = Absent(says, dist_info.replace_command(waited_for[0].parent), problem.problem)
        machine = dataclasses.replace(machine, torch_problem=problem)
    hardware = backends_on_pci_bus()
    verdicts = [judge(Case(machine, cache, package, hardware, os.environ)) for package in packages]
    return Report(
        machine,
        relevant_variables(os.environ),
        cache,
        tuple(packages),
        tuple(verdicts or [judge_machine(machine)]),
    )


def examine_package(name: str, machine: Machine, progress: Progress, seconds: float) -> Package:
    """The facts of a distribution or a module, which need not be installed."""
    folders = dist_info.dist_infos()
    found = dist_info.find_distribution(name, folders)
    info = dist_info.read_dist_info(found[0]) if found else None
    module = _import_name(name, info)
    progress.step(f"importing {module} in a process of its own")
    imported = import_package(module, seconds)
    # The folder that it is installed in, or is imported from.
    first = next(iter((*found, *imported.folders)), None)
    root = first.parent.resolve() if first else None
    progress.step(f"reading the libraries of {name}")
    libraries = dist_info.native_libraries(root, info, imported.folders) if root else ()
    loaded = {path.resolve() for path in imported.libraries}
    natives: tuple[NativeLibrary, ...] = ()
    if root and libraries:
        torch = machine.torch.folder if machine.torch else None
        loader = Loader(Path(sys.executable), torch, os.environ)
        claims, cpu = info.claims if info else None, CpuTime()
        natives = tuple(
            read_native(path, root, loader, claims, cpu, loaded=path in loaded)
            for path in libraries
        )
    return Package(
        name=info.name if info else name,
        module=module,
        root=root,
        info=info,
        imported=imported,
        copies=tuple(dist_info.read_dist_info(folder).version for folder in found[1:]),
        near=() if found else tuple(dist_info.similar_names(name, folders)),
        natives=natives,
    )


def _import_name(name: str, info: dist_info.DistInfo | None) -> str:
    """The module to import: `name` if it is one, else the distribution's main module."""
    if info is None or name in info.packages or not info.packages:
        # To find a submodule, Python would have to run its package here.
        return name.replace("-", "_").partition(".")[0]
    return info.packages[0]
