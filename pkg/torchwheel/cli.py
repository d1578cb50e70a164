"""The command line: `torchwheel COMMAND`."""

import argparse
import sys
from collections.abc import Sequence

from torchwheel import __version__
from torchwheel.arguments import Command, add_commands
from torchwheel.commands import build, machine, publish
from torchwheel.console import prepare_output, run_command
from torchwheel.errors import TorchwheelError
from torchwheel.files import own_temporary_files
from torchwheel.process import end_programs_on_signals

# What a command needs beside the base of torchwheel is in one of its extras.
EXTRAS = {"sigstore": "evidence", "cryptography": "evidence"}

COMMANDS: tuple[Command, ...] = (*build.COMMANDS, *publish.COMMANDS, *machine.COMMANDS)


def parser(commands: Sequence[Command] = COMMANDS) -> argparse.ArgumentParser:
    """The parser of `torchwheel COMMAND …`; the result's `command` is the command's entry."""
    top = argparse.ArgumentParser(
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
        options = parser(commands).parse_args(argv)
    except SystemExit as end:
        status = int(end.code or 0)
        # --help and --version have printed something, too.
        raise SystemExit(run_command("torchwheel", lambda: status)) from None
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
        extra = EXTRAS.get(missing, "pipeline")
        fix = f'run `pip install "torchwheel[{extra}]"`'
        raise TorchwheelError(f"{command.name} needs {missing}: {fix}") from error


if __name__ == "__main__":
    sys.exit(main())
