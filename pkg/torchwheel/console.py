"""What a run shows: a live line on a terminal, plain lines elsewhere."""

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from typing import Protocol

from rich.console import Console


class Progress(Protocol):
    """How a long step says where it is."""

    def say(self, text: str) -> None:
        """One lasting line."""

    def step(self, text: str) -> None:
        """What is being done now, e.g. the file a compiler is on; replaces the step before."""


class Quiet:
    """Progress for callers that want none."""

    def say(self, text: str) -> None:
        """Drop it."""

    def step(self, text: str) -> None:
        """Drop it."""


class Terminal:
    """A spinner with the running step and its seconds on a terminal; plain lines otherwise."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True, highlight=False)
        self._begun = time.monotonic()
        self._status = self.console.status("") if self.console.is_terminal else None

    @contextlib.contextmanager
    def running(self) -> Iterator["Terminal"]:
        """Show the live line while the block runs."""
        with self._status or contextlib.nullcontext():
            yield self

    def say(self, text: str) -> None:
        """One lasting line, after the seconds since the start."""
        seconds = time.monotonic() - self._begun
        self.console.print(f"{seconds:6.1f}s  {text}", markup=False, soft_wrap=True)

    def step(self, text: str) -> None:
        """Show `text` as the running step."""
        if self._status is None:
            self.say(f"  {text}")
        else:
            self._status.update(text)


def fail(text: str) -> None:
    """One line on the error stream."""
    print(f"torchwheel: {text}", file=sys.stderr)


def flush_output(status: int) -> int:
    """The exit status, once all output is; at exit a reader that is gone would be a traceback."""
    sys.stdout.flush()
    return status


def end_quietly() -> int:
    """The exit status where whoever read our output went away: nothing is left to say."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1
