"""The command line: `torchwheel COMMAND`.

Each command imports what it needs when it runs: `smoke --here` and `check` must work on a GPU
machine that has none of the build's dependencies.
"""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from torchwheel import __version__
from torchwheel.console import Terminal, fail
from torchwheel.errors import TorchwheelError, UsageError

Command = Callable[[argparse.Namespace], int]


def _matrix(options: argparse.Namespace) -> int:
    from torchwheel.matrix.load import load
    from torchwheel.matrix.render import matrix_text
    from torchwheel.matrix.select import select

    matrix = load(options.matrix)
    variants = select(matrix, options.variant or ["all"])
    print(matrix_text(matrix, variants, options.form), end="")
    return 0


def _wheels(options: argparse.Namespace) -> int:
    from torchwheel.pipeline.wheels import wheels

    with Terminal().running() as progress:
        text, status = wheels(
            options.matrix,
            options.variant,
            options.dist,
            progress,
            archs=options.archs.replace(";", " ").split(),
            launcher=not options.no_launcher,
        )
    print(text)
    return status


def _check(options: argparse.Namespace) -> int:
    from torchwheel.check.gates import gates_text, passed, run_gates
    from torchwheel.check.limits import Limits

    status = 0
    for wheel in options.wheel:
        results = run_gates(wheel, Limits(max_size_mib=options.max_size))
        print(f"{wheel.name}\n{gates_text(results)}", end="")
        if not passed(results):
            status = 1
    return status


def _smoke(options: argparse.Namespace) -> int:
    from torchwheel.smoke.record import record_text
    from torchwheel.smoke.run import smoke
    from torchwheel.toolkit.cache import cache_folder

    tests, torch = options.tests, options.torch
    requires: tuple[str, ...] = ("pytest",)
    if tests is None:
        # Only then: an offline GPU machine need not have what reads the matrix.
        from torchwheel.matrix.load import load

        wanted = load(options.matrix).smoke
        tests = options.matrix.parent / wanted.tests
        torch, requires = torch or wanted.torch, wanted.requires
    record = options.record or Path("dist", "smoke", f"{options.wheel.name}.json")
    with Terminal().running() as progress:
        found = smoke(
            options.wheel,
            tests=tests,
            torch=torch,
            requires=requires,
            here=options.here,
            record=record,
            junit=options.junit or record.with_suffix(".xml"),
            cache=cache_folder(),
            progress=progress,
        )
    print(f"{record_text(found)}record: {record}")
    return int(not found.ok)


def _serve(options: argparse.Namespace) -> int:
    from torchwheel.index.serve import serve

    serve(options.folder, options.port)
    return 0


def _toolkit(options: argparse.Namespace) -> int:
    from torchwheel.matrix.load import load
    from torchwheel.matrix.shown import nearest
    from torchwheel.toolkit.cache import cache_folder
    from torchwheel.toolkit.host import host_compiler
    from torchwheel.toolkit.provide import provide

    matrix = load(options.matrix)
    if options.name not in matrix.toolkits:
        raise UsageError(
            f"no toolkit {options.name!r} in {options.matrix}; "
            f"{nearest(options.name, matrix.toolkits)}"
        )
    wanted = matrix.toolkit(options.name)
    with Terminal().running() as progress:
        root = provide(
            wanted, wanted.archs, matrix.platforms[0], host_compiler(), cache_folder(), progress
        )
    print(f"CUDA_HOME={root}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="torchwheel",
        description="Builds, proves, tests and publishes wheels of PyTorch extensions.",
    )
    parser.add_argument("--version", action="version", version=f"torchwheel {__version__}")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Command, text: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=text, description=text)
        made.set_defaults(run=run)
        return made

    def with_matrix(made: argparse.ArgumentParser) -> None:
        made.add_argument("--matrix", type=Path, default=Path("matrix.yaml"), help="the matrix")

    made = command("matrix", _matrix, "Print the variants of the matrix.")
    with_matrix(made)
    made.add_argument("variant", nargs="*", help="selection, variant id or pattern (default: all)")
    form = made.add_mutually_exclusive_group()
    form.add_argument("--json", dest="form", action="store_const", const="json", default="table")
    form.add_argument("--github", dest="form", action="store_const", const="github")

    made = command("wheels", _wheels, "Build, repair, check, smoke-test and index wheels.")
    with_matrix(made)
    made.add_argument(
        "variant", nargs="*", help="selection, variant id or pattern (default: default)"
    )
    made.add_argument("--dist", type=Path, default=Path("dist"), help="the output folder")
    made.add_argument("--archs", default="", help='another arch list, e.g. "9.0;12.0+PTX"')
    made.add_argument("--no-launcher", action="store_true", help="compile without sccache")

    made = command("check", _check, "Hold wheels against their claims: the gates.")
    made.add_argument("wheel", type=Path, nargs="+")
    made.add_argument("--max-size", type=int, default=64, help="limit in MiB (default: 64)")

    made = command("smoke", _smoke, "Install a wheel in a clean environment and try it out.")
    with_matrix(made)
    made.add_argument("wheel", type=Path)
    made.add_argument("--here", action="store_true", help="use this Python's own torch; no network")
    made.add_argument("--tests", type=Path, help="folder of smoke tests (default: the matrix's)")
    made.add_argument("--torch", help="torch release of the environment (default: the matrix's)")
    made.add_argument("--record", type=Path, help="JSON record (default: dist/smoke/WHEEL.json)")
    made.add_argument("--junit", type=Path, help="JUnit file (default: beside the record)")

    index = command("index", _serve, "Serve an index on loopback.")
    index.add_argument("folder", type=Path, nargs="?", default=Path("dist/index"))
    index.add_argument("--port", type=int, default=8000)

    made = command("toolkit", _toolkit, "Provision and verify a toolkit; print its CUDA_HOME.")
    with_matrix(made)
    made.add_argument("name", help="a toolkit of the matrix, e.g. cu130")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Exit status: 0 done, 1 something failed, 2 the call or matrix is wrong."""
    options = _parser().parse_args(argv)
    try:
        return int(options.run(options))
    except TorchwheelError as error:
        if options.debug:
            raise
        fail(str(error))
        return error.status
    except BrokenPipeError:
        # The reader of our output went away: nothing is left to say.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        fail("stopped; run again to go on")
        return 1


if __name__ == "__main__":
    sys.exit(main())
