"""The command line: `torchwheel COMMAND`."""

import argparse
import sys
from collections.abc import Sequence

from torchwheel import __version__
from torchwheel.arguments import Command, add_commands
from torchwheel.commands import build, machine, publish
from torchwheel.console import end_quietly, flush_output, print_error
from torchwheel.errors import TorchwheelError

EXTRA = 'run `pip install "torchwheel[pipeline]"`'

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
    options = parser(commands).parse_args(argv)
    command: Command = options.command
    try:
        return flush_output(command.run(options) if command.run else 0)
    except TorchwheelError as error:
        if options.debug:
            raise
        print_error(str(error))
        return error.status
    except ModuleNotFoundError as error:
        # An extension brings what its import needs; what builds wheels is an extra.
        missing = (error.name or "").partition(".")[0]
        if options.debug or missing in ("", "torchwheel"):
            raise
        print_error(f"{command.name} needs {missing}: {EXTRA}")
        return 1
    except BrokenPipeError:
        return end_quietly()
    except KeyboardInterrupt:
        print_error("stopped; run again to go on")
        return 1


if __name__ == "__main__":
    sys.exit(main())
