"""One run of the doctor: `torchwheel doctor [PACKAGE …] [--json]`."""

import argparse
import os
import sys
from collections.abc import Sequence

from torchwheel.arguments import parser
from torchwheel.console import Progress, Quiet, Terminal, fail, reader_is_gone, written
from torchwheel.doctor import caches, installed, variables
from torchwheel.doctor.as_json import report_json
from torchwheel.doctor.examine import examine
from torchwheel.doctor.hardware import on_the_bus
from torchwheel.doctor.importing import SECONDS
from torchwheel.doctor.model import Case, Report
from torchwheel.doctor.text import report_text
from torchwheel.doctor.verdict import judge, judge_machine
from torchwheel.errors import TorchwheelError
from torchwheel.machine.whole import whole


def main(arguments: Sequence[str]) -> int:
    """What follows `torchwheel doctor`; an extension's `python -m` comes here with its name."""
    try:
        return written(run(parser().parse_args(["doctor", *arguments])))
    except TorchwheelError as error:
        fail(str(error))
        return error.status
    except BrokenPipeError:
        return reader_is_gone()


def run(options: argparse.Namespace) -> int:
    """Print the report. Exit status: 0 nothing is wrong, 1 something is."""
    if sys.stderr.isatty():
        with Terminal().running() as progress:
            report = examined(options.package, progress, seconds=options.seconds)
    else:
        report = examined(options.package, Quiet(), seconds=options.seconds)
    print(report_json(report) if options.json else report_text(report))
    return int(not report.ok)


def examined(names: Sequence[str], progress: Progress, *, seconds: float = SECONDS) -> Report:
    """Examine this machine and packages on it.

    Args:
        names: distributions, or what is imported; none: every one that torchwheel made.
        progress: where to say what is being done.
        seconds: the time limit of each import.
    """
    progress.step("Python, torch, driver, GPUs, compilers, toolkits")
    machine, cache = whole(), caches.look()
    wanted = names or installed.with_claims(installed.dist_infos())
    packages = [examine(name, machine, progress, seconds=seconds) for name in wanted]
    hardware = on_the_bus()
    verdicts = [judge(Case(machine, cache, one, hardware, os.environ)) for one in packages]
    return Report(
        machine,
        variables.told(os.environ),
        cache,
        tuple(packages),
        tuple(verdicts or [judge_machine(machine)]),
    )
