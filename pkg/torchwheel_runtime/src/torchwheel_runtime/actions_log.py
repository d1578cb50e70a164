"""The log of GitHub Actions: groups that fold, errors that it shows, and no commands by others.

A line of a job's output that begins with `::`, or has `##[` in it, is a command for the runner. So
what others print is escaped there, and ours are written past the escaping.
"""

import os
import re
from collections.abc import Callable, Mapping

_COMMAND = re.compile(r"^([ \t]*):(?=:|$)|#(?=#\[)", re.MULTILINE)
_OF_OPEN_LINE = re.compile(r"#(?=#\[)|(?<=\n)([ \t]*):(?=:|$)", re.MULTILINE)


def is_in_actions(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether a runner of GitHub Actions reads what this process prints."""
    return environ.get("GITHUB_ACTIONS") == "true"


def escape_commands(text: str, *, open_line: bool = False) -> str:
    """A text without commands for the runner.

    Args:
        text: what is printed.
        open_line: whether it goes on in a line, whose start is printed already.
    """
    return (_OF_OPEN_LINE if open_line else _COMMAND).sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    return f"{found[1] or ''}\\u{ord(found[0][-1]):04x}"


def error_command(text: str) -> str:
    """The command by which the runner shows an error beside the log."""
    return f"::error::{_data(text)}\n"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


class Groups:
    """Writes lines in groups, one after another: those of others are held until one has ended."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._open = ""
        self._held: dict[str, list[str]] = {}
        self._ended: set[str] = set()

    def begin(self, name: str) -> None:
        """Begin the lines of a group; it is written at once if no other is open."""
        self._held.setdefault(name, [])
        self._open_next()

    def line(self, name: str, text: str) -> None:
        """Write a line of a group, or of none; hold it while another group is open."""
        if name in self._held and name != self._open:
            self._held[name].append(text)
        else:
            self._write(escape_commands(text))

    def end(self, name: str) -> None:
        """End a group, and open the next."""
        self._ended.add(name)
        self._open_next()

    def _open_next(self) -> None:
        while self._held:
            if not self._open:
                self._open = next(iter(self._held))
                self._write(f"::group::{_data(self._open)}\n")
                for text in self._held[self._open]:
                    self._write(escape_commands(text))
                self._held[self._open].clear()
            if self._open not in self._ended:
                return
            self._write("::endgroup::\n")
            self._ended.remove(self._open)
            del self._held[self._open]
            self._open = ""
