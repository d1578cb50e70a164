"""The progress of a run: a live line on a terminal, plain lines elsewhere; and error lines."""

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from typing import Protocol

from rich.console import Console


class Progress(Protocol):
    """Where a long job reports what it does."""

    def say(self, text: str) -> None:
        """Print a line that stays."""

    def step(self, text: str) -> None:
        """Show the current step, e.g. the file that a compiler works on, instead of the last."""


class Quiet:
    """Progress that prints nothing."""

    def say(self, text: str) -> None:
        """Print nothing."""

    def step(self, text: str) -> None:
        """Print nothing."""


class Terminal:
    """A spinner with the running step and its seconds on a terminal; plain lines otherwise."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True, highlight=False)
        self._start = time.monotonic()
        self._status = self.console.status("") if self.console.is_terminal else None

    @contextlib.contextmanager
    def live_line(self) -> Iterator["Terminal"]:
        """Show the live line while the block runs."""
        with self._status or contextlib.nullcontext():
            yield self

    def say(self, text: str) -> None:
        """Print a line that stays, after the seconds since the start."""
        seconds = time.monotonic() - self._start
        self.console.print(f"{seconds:6.1f}s  {text}", markup=False, soft_wrap=True)

    def step(self, text: str) -> None:
        """Show `text` as the current step."""
        if self._status is None:
            self.say(f"  {text}")
        else:
            self._status.update(text)


def print_error(text: str) -> None:
    """Print one line on the error stream."""
    print(f"torchwheel: {text}", file=sys.stderr)


def flush_output(status: int) -> int:
    """Flush the output and return `status`; at exit a closed pipe would be a traceback."""
    sys.stdout.flush()
    return status


def end_quietly() -> int:
    """The exit status after the reader of our output went away; discards the rest of it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1
