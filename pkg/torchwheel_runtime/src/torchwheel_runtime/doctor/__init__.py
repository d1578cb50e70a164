"""The doctor explains what an extension runs on, why, and how to fix it: how it is called."""

import argparse
import contextlib
import sys
from collections.abc import Sequence
from importlib import metadata

from torchwheel_runtime.arguments import Parser, one_of, option, positive_number
from torchwheel_runtime.console import Quiet, Terminal, prepare_output, run_command
from torchwheel_runtime.errors import MissingModuleError

SECONDS = 35
"""Time limit of an import: with it the doctor ends within a minute, whatever the package does."""
HELP = "Explain what packages here run on, and what fixes them."
_HOW = (
    one_of(
        option("-q", "--quiet", action="store_true", help="the verdict and its fix alone"),
        option(
            *("-v", "--verbose"),
            action="store_true",
            help="libraries, compilers, toolkits, the cache and variables too",
        ),
        option("--json", action="store_true", help="print it all as JSON"),
    ),
    option(
        "--seconds",
        type=positive_number,
        default=SECONDS,
        help=f"time limit of an import (default: {SECONDS})",
    ),
)
OPTIONS = (
    option(
        "package", nargs="*", help="distribution or module (default: those that torchwheel made)"
    ),
    *_HOW,
)
_EXAMPLES = """\
examples:
  python -m {0}            what it runs on, and what fixes a problem
  python -m {0} --verbose  all that was looked at, for a bug report

more: docs/doctor.md
"""


def main(package: str, arguments: Sequence[str]) -> int:
    """`python -m PACKAGE` of an extension: run the doctor on it."""
    prepare_output()
    parser = Parser(
        prog=f"python -m {package}",
        description=f"Explain what {package} runs on here, and what fixes it.",
        epilog=_EXAMPLES.format(package),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"{package} {_version(package)}")
    for declare in _HOW:
        declare(parser)
    parser.set_defaults(package=[package])
    return run_command("doctor", lambda: run_doctor(parser.parse_args(arguments)))


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "(a source tree, not installed)"


def run_doctor(options: argparse.Namespace) -> int:
    """Print the report. Exit status: 0 if nothing is wrong, else 1."""
    try:
        from torchwheel_runtime.doctor import examine, report  # noqa: PLC0415 - they need packaging
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "packaging":
            raise
        raise MissingModuleError(
            f"the doctor needs packaging, which {sys.executable} does not have; "
            f"run `{sys.executable} -m pip install packaging`"
        ) from error
    terminal = Terminal()
    shown = terminal.is_live and not options.quiet
    with terminal.live_line() if shown else contextlib.nullcontext(Quiet()) as progress:
        found = examine.examine_packages(options.package, progress, options.seconds)
    if options.json:
        print(report.report_json(found))
    elif options.quiet:
        print("\n".join(map(report.verdict_text, found.verdicts)))
    else:
        print(report.report_text(found, verbose=options.verbose))
    return int(not found.ok)
