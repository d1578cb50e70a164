"""One run of the doctor: `torchwheel doctor [PACKAGE …] [--json]`."""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from torchwheel.arch.model import Backend
from torchwheel.arguments import command_parser
from torchwheel.console import Progress, Quiet, Terminal, end_quietly, fail, flush_output
from torchwheel.doctor import HELP, OPTIONS, caches, dist_info
from torchwheel.doctor.as_json import report_json
from torchwheel.doctor.case import Case, Report
from torchwheel.doctor.examine import examine
from torchwheel.doctor.importing import SECONDS
from torchwheel.doctor.text import report_text
from torchwheel.doctor.verdict import judge, judge_machine
from torchwheel.errors import TorchwheelError
from torchwheel.machine.discovery import find_machine

_OWN = "TORCHWHEEL_"
_OTHERS = (
    *("CUDA_HOME", "ROCM_PATH", "CXX", "TORCH_CUDA_ARCH_LIST", "PYTORCH_ROCM_ARCH"),
    *("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"),
    *("LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH", "CONDA_PREFIX"),
)


def set_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Those that are set, torchwheel's own first."""
    own = sorted(name for name in environ if name.startswith(_OWN))
    return {name: environ[name] for name in (*own, *_OTHERS) if name in environ}


_VENDORS: dict[str, Backend] = {"0x10de": "cuda", "0x1002": "rocm"}
_DISPLAY = "0x03"
"""Display controllers, 3D accelerators among them."""


def on_the_bus(root: Path = Path("/")) -> tuple[Backend, ...]:
    """Whose GPUs there are; a virtual machine may show none, and an AMD one may be a screen's."""
    found: set[Backend] = set()
    for device in (root / "sys/bus/pci/devices").glob("*"):
        try:
            kind = (device / "class").read_text(encoding="ascii").strip()
            vendor = (device / "vendor").read_text(encoding="ascii").strip()
        except (OSError, ValueError):
            continue
        if kind.startswith(_DISPLAY) and vendor in _VENDORS:
            found.add(_VENDORS[vendor])
    return tuple(sorted(found))


def main(arguments: Sequence[str]) -> int:
    """What follows `torchwheel doctor`; an extension's `python -m` comes here with its name."""
    try:
        return flush_output(run(command_parser("doctor", HELP, OPTIONS).parse_args(arguments)))
    except TorchwheelError as error:
        fail(str(error))
        return error.status
    except BrokenPipeError:
        return end_quietly()


def run(options: argparse.Namespace) -> int:
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
    machine, cache = find_machine(), caches.look()
    wanted = names or dist_info.with_claims(dist_info.dist_infos())
    packages = [examine(name, machine, progress, seconds=seconds) for name in wanted]
    hardware = on_the_bus()
    verdicts = [judge(Case(machine, cache, one, hardware, os.environ)) for one in packages]
    return Report(
        machine,
        set_variables(os.environ),
        cache,
        tuple(packages),
        tuple(verdicts or [judge_machine(machine)]),
    )
