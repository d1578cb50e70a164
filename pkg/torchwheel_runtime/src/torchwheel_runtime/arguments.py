"""A command as one entry (name, help, options, action), and the parser made of such entries."""

import argparse
import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from torchwheel_runtime.text import escape, nearest, quote

Action = Callable[[argparse.Namespace], int]
Declare = Callable[["argparse._ActionsContainer"], object]
"""Declares an option, a positional argument or a group of them."""
_Request = TypeVar("_Request")


class Parser(argparse.ArgumentParser):
    """A parser whose errors are printable: an argument may be the name of anybody's file.

    Attributes:
        closing: lines that end its help, as they are.
    """

    closing: Sequence[str] = ()

    def format_help(self) -> str:
        """The help with its closing lines."""
        return super().format_help() + "".join(f"{line}\n" for line in self.closing)

    def _check_value(self, action: argparse.Action, value: Any) -> None:  # noqa: ANN401
        """Say which command was meant, not only which there are."""
        commands = isinstance(action, argparse._SubParsersAction)
        if commands and value not in (action.choices or ()):
            known = nearest(str(value), action.choices or ())
            raise argparse.ArgumentError(None, f"no command {quote(str(value))}; {known}")
        super()._check_value(action, value)

    def error(self, message: str) -> NoReturn:
        """Print the usage and the error, and end with status 2."""
        super().error(escape(message))


@dataclasses.dataclass(frozen=True)
class Command:
    """A command of the command line.

    Attributes:
        name: what the user types, e.g. "wheels" or "cache list".
        help: one sentence, shown in the list of commands and above the command's own help.
        options: its options and positional arguments, in the order of its help.
        run: carries it out and returns the exit status; None for a group of commands.
        commands: the commands of a group.
        examples: calls of it, without the program's name.
        page: the page of docs/ that says more.
        extra: the extra of torchwheel that it needs; "" for none.
    """

    name: str
    help: str
    options: tuple[Declare, ...] = ()
    run: Action | None = None
    commands: tuple["Command", ...] = ()
    examples: tuple[str, ...] = ()
    page: str = ""
    extra: str = ""

    def add_to(self, parser: argparse.ArgumentParser) -> None:
        """Declare the options of this command, or the commands of this group."""
        for declare in self.options:
            declare(parser)
        if self.commands:
            add_commands(parser, self.commands, "ACTION")
        else:
            parser.set_defaults(command=self)


def option(*names: str, **settings: Any) -> Declare:  # noqa: ANN401 - as argparse takes them
    """An option or a positional argument, with the settings of argparse's `add_argument`."""
    return lambda parser: parser.add_argument(*names, **settings)


def one_of(*options: Declare) -> Declare:
    """Options that exclude each other."""

    def declare(parser: "argparse._ActionsContainer") -> None:
        exclusive = parser.add_mutually_exclusive_group()
        for one in options:
            one(exclusive)

    return declare


def command(
    name: str,
    help_: str,
    *options: Declare,
    examples: tuple[str, ...] = (),
    page: str = "",
    extra: str = "",
) -> Callable[[Action], Command]:
    """Decorator: make a function that takes the parsed options a command."""
    return lambda run: Command(name, help_, options, run, (), examples, page, extra)


def group(name: str, help_: str, *commands: Command) -> Command:
    """A command whose first argument names another one, e.g. `cache list`."""
    return Command(name, help_, commands=commands)


def add_commands(
    parser: argparse.ArgumentParser, commands: Sequence[Command], metavar: str
) -> None:
    """Declare `commands`; the result of a parse has the one that was called as `command`."""
    choices = parser.add_subparsers(required=True, metavar=metavar)
    for entry in commands:
        word = entry.name.rpartition(" ")[2]
        # The commands of torchwheel itself are listed by who needs them, below its options.
        listed: dict[str, Any] = {"help": entry.help} if " " in entry.name else {}
        one = choices.add_parser(word, description=entry.help, **listed)
        if isinstance(one, Parser):
            one.closing = _closing(entry)
        add_output_options(one, default=argparse.SUPPRESS, help=argparse.SUPPRESS)
        entry.add_to(one)


def _closing(entry: Command) -> list[str]:
    """What ends the help of a command."""
    lines = [f"  torchwheel {example}" for example in entry.examples]
    blocks = [["examples:", *lines]] if lines else []
    if entry.extra:
        blocks.append([f"needs torchwheel[{entry.extra}]"])
    if entry.page:
        blocks.append([f"more: docs/{entry.page}"])
    return [line for block in blocks for line in ("", *block)]


_OUTPUT: Mapping[str, Mapping[str, Any]] = {
    "--debug": {"action": "store_true", "help": "show the traceback of an error"},
    "--color": {
        "choices": ("auto", "always", "never"),
        "default": "auto",
        "help": "where to use colours (default: on a terminal, unless NO_COLOR or FORCE_COLOR is "
        "set)",
    },
}


def add_output_options(parser: argparse.ArgumentParser, **settings: Any) -> None:  # noqa: ANN401
    """Declare the options of every command, with `settings` in place of their own."""
    for name, own in _OUTPUT.items():
        parser.add_argument(name, **{**own, **settings})


def request_of(
    kind: Callable[..., _Request],
    options: argparse.Namespace,
    *read: str,
    **others: Any,  # noqa: ANN401 - any field
) -> _Request:
    """The request of a command: a dataclass whose fields are the options of the same names.

    Lists become tuples. `read` names the options that are no fields, as the command reads them
    itself; `others` are fields that it makes, of an option of that name or of something else.

    Raises:
        TypeError: an option is neither a field nor read by the command: nothing would obey it.
    """
    fields = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in vars(options).items()
        if name not in (*_OF_ALL, *read)
    }
    return kind(**{**fields, **others})


_OF_ALL = ("command", "debug", "color", "quiet", "verbose")
"""What the result of a parse has for every command, or for each that shows progress."""
_MOST = 10**6
_LAST_PORT = 65535


def positive_number(text: str) -> int:
    """The type of an option that counts something."""
    number = _whole_number(text)
    if number is None or not 1 <= number <= _MOST:
        expected = f"a whole number of at least 1 expected, and of at most {_MOST}"
        raise argparse.ArgumentTypeError(f"{quote(text)}: {expected}")
    return number


def port_number(text: str) -> int:
    """The type of an option that names a port; 0 is any that is free."""
    number = _whole_number(text)
    if number is None or number > _LAST_PORT:
        raise argparse.ArgumentTypeError(f"{quote(text)}: a port expected, 0 to {_LAST_PORT}")
    return number


def _whole_number(text: str) -> int | None:
    """The number that decimal digits write; None for any other text, and for very long ones."""
    return int(text) if re.fullmatch("[0-9]{1,9}", text) else None


MATRIX = option("--matrix", type=Path, default=Path("matrix.yaml"), help="the matrix")
LOCKED = option(
    "--locked",
    action="store_true",
    help="try wheels in the packages that smoke.locks pins by hash, if the matrix has it",
)
SIGNER = (
    option(
        "--workflow",
        help="path of the workflow file that must have made it (default: "
        ".github/workflows/wheels.yml or release.yml)",
    ),
    option(
        "--self-hosted",
        action="store_true",
        help="believe a job on a machine of one's own, too, not only on one of the forge's",
    ),
)
PROGRESS = one_of(
    option("-q", "--quiet", action="store_true", help="print results and errors alone"),
    option("-v", "--verbose", action="store_true", help="print what the programs print, too"),
)
"""The options of a command that shows its progress."""
GPU = option("--gpu", default="yes", help='"no" for a dry run without the runners with a GPU')
