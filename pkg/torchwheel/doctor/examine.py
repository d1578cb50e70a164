"""`torchwheel doctor [PACKAGE …] [--json]`: examines the machine and packages, and reports."""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torchwheel.arch.model import Backend
from torchwheel.arguments import command_parser
from torchwheel.console import Progress, Quiet, Terminal, end_quietly, fail, flush_output
from torchwheel.doctor import HELP, OPTIONS, caches, dist_info
from torchwheel.doctor.case import Case, Package, Report
from torchwheel.doctor.importing import SECONDS, import_package
from torchwheel.doctor.json_report import report_json
from torchwheel.doctor.loader import Loader
from torchwheel.doctor.native import NativeLibrary, read_native
from torchwheel.doctor.text_report import report_text
from torchwheel.doctor.verdict import judge, judge_machine
from torchwheel.errors import TorchwheelError
from torchwheel.machine.discovery import find_machine
from torchwheel.machine.facts import Machine
from torchwheel.runtime.status import ExtensionStatus, OperatorStatus, Refusal

_OWN_PREFIX = "TORCHWHEEL_"
_OTHER_VARIABLES = (
    *("CUDA_HOME", "ROCM_PATH", "CXX", "TORCH_CUDA_ARCH_LIST", "PYTORCH_ROCM_ARCH"),
    *("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"),
    *("LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH", "CONDA_PREFIX"),
)


def relevant_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Those that are set, torchwheel's own first."""
    own = sorted(name for name in environ if name.startswith(_OWN_PREFIX))
    return {name: environ[name] for name in (*own, *_OTHER_VARIABLES) if name in environ}


_VENDORS: dict[str, Backend] = {"0x10de": "cuda", "0x1002": "rocm"}
_DISPLAY_CLASS = "0x03"
"""Display controllers, 3D accelerators among them."""


def backends_on_pci_bus(root: Path = Path("/")) -> tuple[Backend, ...]:
    """Whose GPUs there are; a virtual machine may show none, and an AMD one may be a screen's."""
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


def main(arguments: Sequence[str]) -> int:
    """What follows `torchwheel doctor`; an extension's `python -m` comes here with its name."""
    try:
        return flush_output(
            run_doctor(command_parser("doctor", HELP, OPTIONS).parse_args(arguments))
        )
    except TorchwheelError as error:
        fail(str(error))
        return error.status
    except BrokenPipeError:
        return end_quietly()


def run_doctor(options: argparse.Namespace) -> int:
    """Print the report. Exit status: 0 nothing is wrong, 1 something is."""
    if sys.stderr.isatty():
        with Terminal().running() as progress:
            report = examine_packages(options.package, progress, seconds=options.seconds)
    else:
        report = examine_packages(options.package, Quiet(), seconds=options.seconds)
    print(report_json(report) if options.json else report_text(report))
    return int(not report.ok)


def examine_packages(
    names: Sequence[str], progress: Progress, *, seconds: float = SECONDS
) -> Report:
    """Examine this machine and packages on it.

    Args:
        names: distributions, or what is imported; none: every one that torchwheel made.
        progress: where to say what is being done.
        seconds: the time limit of each import.
    """
    progress.step("Python, torch, driver, GPUs, compilers, toolkits")
    machine, cache = find_machine(), caches.examine_cache()
    wanted = names or dist_info.distributions_with_claims(dist_info.dist_infos())
    packages = [examine_package(name, machine, progress, seconds=seconds) for name in wanted]
    hardware = backends_on_pci_bus()
    verdicts = [judge(Case(machine, cache, one, hardware, os.environ)) for one in packages]
    return Report(
        machine,
        relevant_variables(os.environ),
        cache,
        tuple(packages),
        tuple(verdicts or [judge_machine(machine)]),
    )


def examine_package(
    name: str,
    machine: Machine,
    progress: Progress,
    *,
    seconds: float = SECONDS,
    environ: Mapping[str, str] = os.environ,
) -> Package:
    """Everything there is to know of a package here; it need not be there.

    Args:
        name: of the distribution, or of what is imported.
        machine: whose torch the libraries are held against.
        progress: where to say what is being read.
        seconds: the time limit of its import.
        environ: the environment that libraries are looked for in.
    """
    folders = dist_info.dist_infos()
    found = dist_info.find_distribution(name, folders)
    info = dist_info.read_dist_info(found[0]) if found else None
    module = _import_name(name, info)
    progress.step(f"import {module}")
    imported = import_package(module, seconds)
    root = _root(found, imported.folders)
    progress.step(f"libraries of {name}")
    libraries = dist_info.native_libraries(root, info, imported.folders) if root else ()
    loaded = {path.resolve() for path in imported.libraries}
    natives: tuple[NativeLibrary, ...] = ()
    if root and libraries:
        torch = machine.torch.folder if machine.torch else None
        loader = Loader(Path(sys.executable), torch, environ)
        natives = tuple(read_native(p, root, loader, loaded=p in loaded) for p in libraries)
    return Package(
        name=info.name if info else name,
        module=module,
        root=root,
        info=info,
        imported=imported,
        copies=tuple(dist_info.read_dist_info(folder).version for folder in found[1:]),
        near=() if found else tuple(dist_info.similar_names(name, folders)),
        natives=natives,
        status=_parse_status(imported.status) if imported.status else None,
    )


def _import_name(name: str, info: dist_info.DistInfo | None) -> str:
    """What to import: what was asked for if that is a module, else the distribution's first."""
    if info is None or name in info.packages or not info.packages:
        # A package inside another would have that one run to be found.
        return name.replace("-", "_").partition(".")[0]
    return info.packages[0]


def _root(found: list[Path], folders: tuple[Path, ...]) -> Path | None:
    """The folder that the package is installed in, or lies in."""
    if found:
        return found[0].parent.resolve()
    return folders[0].parent.resolve() if folders else None


def _parse_status(told: dict[str, Any]) -> ExtensionStatus:
    """The run-time half's word, as the child passed it on."""
    return ExtensionStatus(
        package=told["package"],
        mode=told["mode"],
        operators=tuple(
            OperatorStatus(
                operator=one["operator"],
                ops=tuple(one["ops"]),
                way=one["way"],
                library=Path(one["library"]) if one["library"] else None,
                refusals=tuple(Refusal(**refusal) for refusal in one["refusals"]),
            )
            for one in told["operators"]
        ),
    )
