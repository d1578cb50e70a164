"""Commands that prove finished wheels."""

import argparse
import dataclasses
from pathlib import Path

from torchwheel_runtime.arguments import LOCKED, MATRIX, PROGRESS, command, option, positive_number
from torchwheel_runtime.console import Terminal
from torchwheel_runtime.errors import TorchwheelError


@command(
    "check",
    "Hold wheels against their claims: the gates.",
    option("wheel", type=Path, nargs="+"),
    option("--max-size", type=positive_number, help="limit in MiB (default: 64; auto: none)"),
    option(
        "--claims",
        choices=("file", "auto"),
        default="file",
        help="what a wheel is held to: its torchwheel.json, or what anybody's wheel says by its "
        "name and metadata (default: file)",
    ),
    option("--sarif", type=Path, metavar="FILE", help="write the findings as SARIF 2.1.0"),
    option(
        "--summary",
        type=Path,
        metavar="FILE",
        help="append them as Markdown ($GITHUB_STEP_SUMMARY)",
    ),
    examples=(
        "check dist/*.whl",
        "check --claims auto flash_attn-2.8.3-cp312-cp312-linux_x86_64.whl",
    ),
    page="gates.md",
    extra="pipeline",
)
def check(options: argparse.Namespace) -> int:
    """Print the gates of each wheel."""
    from torchwheel.check.gates import check_wheels

    return check_wheels(
        options.wheel,
        auto=options.claims == "auto",
        max_size_mib=options.max_size,
        sarif=options.sarif,
        summary=options.summary,
    )


@command(
    "inspect",
    "Say what is in anybody's wheel, package or library, and what it claims that is not true.",
    option("subject", nargs="+", help="a wheel, a library, or the name of an installed package"),
    option("--json", action="store_true", help="print a JSON object for each, one a line"),
    option(
        "--stable-abi",
        action="store_true",
        help="say instead what keeps it from one wheel for every torch, and what replaces that",
    ),
    examples=(
        "inspect flash_attn-2.8.3-cp312-cp312-linux_x86_64.whl",
        "inspect --stable-abi torchvision",
        "inspect --json torch_scatter",
    ),
    page="gates.md",
)
def inspect(options: argparse.Namespace) -> int:
    """Print a report for each subject."""
    from torchwheel.check.gates import findings_of
    from torchwheel.check.inspection_text import inspection_json, inspection_text
    from torchwheel.check.named_claims import NamedCase, case_of
    from torchwheel.check.stable_abi import read_stable_abi, stable_abi_json, stable_abi_text
    from torchwheel.inspect.inspection import inspect

    def report(case: NamedCase) -> str:
        if options.stable_abi:
            found = read_stable_abi(case)
            return stable_abi_json(found) if options.json else stable_abi_text(found)
        return (inspection_json if options.json else inspection_text)(case, findings_of(case))

    refused: list[TorchwheelError] = []
    separator = ""
    for subject in options.subject:
        try:
            case = case_of(inspect(subject))
            text = report(case)
        except TorchwheelError as error:
            refused.append(error)
            continue
        print(separator, text, sep="", end="")
        separator = "" if options.json else "\n"
    if len(refused) > 1:
        raise TorchwheelError(*(line for error in refused for line in error.args))
    if refused:
        raise refused[0]
    return 0


@command(
    "smoke",
    "Install a wheel in a clean environment and try it out.",
    MATRIX,
    option("wheel", type=Path),
    option("--here", action="store_true", help="use this Python's own torch; no network"),
    option("--tests", type=Path, help="folder of smoke tests (default: the matrix's)"),
    option("--torch", help="torch release of the environment (default: the matrix's)"),
    LOCKED,
    option("--record", type=Path, help="JSON record (default: dist/smoke/WHEEL.json)"),
    option("--junit", type=Path, help="JUnit file (default: beside the record)"),
    PROGRESS,
    examples=(
        "smoke dist/demo-1.0.0-py3-none-any.whl",
        "smoke dist/demo-1.0.0-py3-none-any.whl --here --tests tests/smoke",
    ),
    page="reference/sessions.md",
    extra="pipeline",
)
def smoke(options: argparse.Namespace) -> int:
    """Run the smoke tests of a wheel and write their record."""
    from torchwheel.smoke.requirements import bundled_with
    from torchwheel.smoke.smoke_record import record_text
    from torchwheel.smoke.testing import Trial, smoke
    from torchwheel_runtime.toolkit.cache import cache_folder

    trial = Trial(options.tests, options.torch)
    if options.tests is None:
        # With --tests the matrix is not read: an offline GPU machine has no YAML parser.
        from torchwheel.inspect.wheel import read_wheel
        from torchwheel.matrix.load import load
        from torchwheel.pipeline.sources import project_folder, trial_of
        from torchwheel.smoke.trial_environment import default_torch

        matrix = load(options.matrix)
        root = options.matrix.resolve().parent
        source = project_folder(matrix, root, cache_folder(), Terminal())
        trial = trial_of(matrix, root, source, locked=options.locked)
        default = trial.torch and default_torch(read_wheel(options.wheel), trial.torch)
        trial = dataclasses.replace(trial, torch=options.torch or default)
    file = options.record or Path("dist", "smoke", f"{options.wheel.name}.json")
    with Terminal().live_line() as progress:
        record = smoke(
            options.wheel,
            trial,
            bundled=bundled_with(options.wheel),
            record=file,
            cache=cache_folder(),
            progress=progress,
            junit=options.junit or file.with_suffix(".xml"),
            here=options.here,
        )
    print(f"{record_text(record)}record: {file}")
    return int(not record.ok)


@command(
    "compat",
    "Try a wheel with every torch that it claims.",
    MATRIX,
    option("wheel", type=Path),
    option(
        "--torch", action="append", help="a release; may be repeated (default: those of the matrix)"
    ),
    option(
        "--python",
        action="append",
        help='a Python ("3.12" or a path); may be repeated: then each torch is tried with two of '
        "them that it was published for (default: this Python)",
    ),
    option(
        "--all-tests",
        action="store_true",
        help="run every test, not the files of smoke.without_gpu alone",
    ),
    option(
        "--keep",
        action="store_true",
        help="keep the environments in torchwheel's cache for another wheel, 5 GB each",
    ),
    option(
        "--record", type=Path, default=Path("dist", "compat.json"), help="default: dist/compat.json"
    ),
    PROGRESS,
    examples=("compat dist/demo-1.0.0-py3-none-any.whl --torch 2.11.0 --torch 2.13.0",),
    page="reference/sessions.md",
    extra="pipeline",
)
def compat(options: argparse.Namespace) -> int:
    """Run the smoke tests of a wheel with each torch and print a table."""
    from torchwheel.interpreters import find_interpreter, running_interpreter
    from torchwheel.matrix.load import load
    from torchwheel.pipeline.sources import project_folder, trial_of
    from torchwheel.smoke.compat import compat, compat_text
    from torchwheel_runtime.toolkit.cache import cache_folder

    matrix, root = load(options.matrix), options.matrix.resolve().parent
    source = project_folder(matrix, root, cache_folder(), Terminal())
    pythons = [find_interpreter(name) for name in options.python or ()]
    trial = trial_of(matrix, root, source, locked=False)
    if options.all_tests:
        trial = dataclasses.replace(trial, without_gpu=())
    with Terminal().live_line() as progress:
        rows = compat(
            options.wheel,
            options.torch or [f"{minor}.0" for minor in matrix.torch],
            trial,
            record=options.record,
            progress=progress,
            pythons=pythons or [running_interpreter()],
            cache=cache_folder() if options.keep else None,
        )
    print(f"{compat_text(rows)}record: {options.record}")
    return int(not all(row.ok for row in rows))
