"""The doctor explains what an extension runs on, why, and how to fix it: how it is called."""

import argparse
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
        option(
            *("-q", "--quiet"),
            action="store_true",
            default=argparse.SUPPRESS,
            help="the verdict and its fix alone",
        ),
        option(
            *("-v", "--verbose"),
            action="store_true",
            default=argparse.SUPPRESS,
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
    options = parser.parse_args(arguments)
    return run_command("doctor", lambda: run_doctor(options))


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "(a source tree, not installed)"


def run_doctor(options: argparse.Namespace) -> int:
    """Print the report. Exit status: 0 if nothing is wrong, else 1."""
    try:
        from torchwheel_runtime.doctor.examine import examine_packages  # noqa: PLC0415
        from torchwheel_runtime.doctor.report import (  # noqa: PLC0415 - they need packaging
            report_json,
            report_text,
            verdict_text,
        )
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "packaging":
            raise
        raise MissingModuleError(
            f"the doctor needs packaging, which {sys.executable} does not have; "
            f"run `{sys.executable} -m pip install packaging`"
        ) from error

    quiet, verbose = getattr(options, "quiet", False), getattr(options, "verbose", False)
    if sys.stderr.isatty() and not quiet:
        with Terminal().live_line() as progress:
            report = examine_packages(options.package, progress, options.seconds)
    else:
        report = examine_packages(options.package, Quiet(), options.seconds)
    if options.json:
        print(report_json(report))
    elif quiet:
        print("\n".join(map(verdict_text, report.verdicts)))
    else:
        print(report_text(report, verbose=verbose))
    return int(not report.ok)
