"""The command line: `torchwheel COMMAND`."""

import sys

if __name__ == "__main__" and not getattr(sys.flags, "safe_path", False):
    # The working folder, which `python -m torchwheel.cli` puts first. A file there would be
    # imported in place of a module.
    del sys.path[0]

import argparse
import importlib.metadata
import traceback
from collections.abc import Sequence

from torchwheel import __version__
from torchwheel.commands import build, machine, prove, publish
from torchwheel.programs import end_programs_on_signals
from torchwheel_runtime.arguments import Command, Parser, add_commands
from torchwheel_runtime.console import prepare_output, run_command
from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.files import own_temporary_files

# What a command needs beside the base of torchwheel is in one of its extras.
EXTRAS = {"sigstore": "evidence", "cryptography": "evidence"}

COMMANDS: tuple[Command, ...] = (
    *build.COMMANDS,
    *prove.COMMANDS,
    *publish.COMMANDS,
    *machine.COMMANDS,
)


def parser(commands: Sequence[Command] = COMMANDS) -> argparse.ArgumentParser:
    """The parser of `torchwheel COMMAND …`; the result's `command` is the command's entry."""
    top = Parser(
        prog="torchwheel",
        description="Builds, proves, tests and publishes wheels of PyTorch extensions.",
    )
    top.add_argument("--version", action="version", version=f"torchwheel {__version__}")
    top.add_argument("--debug", action="store_true", help="show the traceback of an error")
    add_commands(top, commands, "COMMAND")
    return top


def main(argv: Sequence[str] | None = None, commands: Sequence[Command] = COMMANDS) -> int:
    """Run one command. Exit status: 0 done, 1 something failed, 2 the call or matrix is wrong."""
    prepare_output()
    try:
        given = sys.argv[1:] if argv is None else argv
        options = parser(commands).parse_args(given or ["--help"])
    except SystemExit as end:
        status = int(end.code or 0)
        # --help and --version have printed something, too.
        raise SystemExit(run_command("torchwheel", lambda: status)) from None
    if options.debug:
        # Without the colours of newer Pythons, which would be escaped.
        sys.excepthook = traceback.print_exception
    command: Command = options.command
    return run_command(command.name, lambda: _carry_out(command, options), debug=options.debug)


def _carry_out(command: Command, options: argparse.Namespace) -> int:
    try:
        with end_programs_on_signals(), own_temporary_files():
            return command.run(options) if command.run else 0
    except ModuleNotFoundError as error:
        # An extension brings what its import needs; what builds wheels is an extra.
        missing = (error.name or "").partition(".")[0]
        if missing in ("", "torchwheel"):
            raise
        wanted = requirements_of(EXTRAS.get(missing, "pipeline"))
        names = " ".join(f'"{one}"' for one in wanted)
        fix = f"run `{sys.executable} -m pip install {names}`"
        raise TorchwheelError(f"{command.name} needs {missing}: {fix}") from error


def requirements_of(extra: str) -> list[str]:
    """What an extra of torchwheel consists of.

    They are named one by one: with "torchwheel[…]" pip might take the name torchwheel from an index
    where it is not ours.
    """
    from packaging.requirements import Requirement  # noqa: PLC0415 - the doctor says what lacks it

    every = map(Requirement, importlib.metadata.requires("torchwheel") or ())
    return [
        f"{one.name}{one.specifier}"
        for one in every
        if one.marker and one.marker.evaluate({"extra": extra})
        if not one.marker.evaluate({"extra": ""})
    ]


if __name__ == "__main__":
    sys.exit(main())
