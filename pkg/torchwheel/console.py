"""The progress of a run: a live line on a terminal, plain lines elsewhere; and error lines."""

import codecs
import contextlib
import io
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Protocol

from rich.console import Console

from torchwheel.errors import TorchwheelError
from torchwheel.os_errors import explain
from torchwheel.text import escape


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
        spinner = "dots" if self.console.encoding.startswith("utf") else "line"
        self._status = (
            self.console.status("", spinner=spinner) if self.console.is_terminal else None
        )

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
    """Print one line on the error stream; if that cannot be written, the exit status has to do."""
    if sys.stderr is None:  # its descriptor is closed
        return
    try:
        # A name in the text could move the cursor, or show its letters in another order.
        lines = "\n".join(map(escape, text.split("\n")))
        print(f"torchwheel: {lines}", file=sys.stderr, flush=True)
    except OSError:
        _discard(2)


class OutputLostError(TorchwheelError):
    """Standard output cannot be written."""


_FAULT = "; this is a fault of torchwheel: `torchwheel --debug {name} …` shows where; report it"


def run_command(name: str, run: Callable[[], int], *, debug: bool = False) -> int:
    """Run a command and return its exit status; every error is one line.

    Args:
        name: the command, for messages.
        run: carries it out and returns the exit status.
        debug: show the traceback of an error.
    """
    try:
        return _run_and_flush(run)
    except KeyboardInterrupt:
        print_error("stopped; run again to go on")
        return 1
    except BrokenPipeError:  # the reader of our output went away, as `head` does
        return 1
    except TorchwheelError as error:
        if debug:
            raise
        print_error(str(error))
        return error.status
    except Exception as error:
        if debug:
            raise
        fault = "" if isinstance(error, OSError) else _FAULT.format(name=name)
        print_error(f"{explain(error, name)}{fault}")
        return 1


def _run_and_flush(run: Callable[[], int]) -> int:
    """Run it and flush its output: when Python ends, an error of that would be a traceback."""
    try:
        status = run()
    except BaseException as error:
        problem = _output_problem()
        if problem and isinstance(error, OSError) and error.filename is None:
            raise problem from error
        raise
    if problem := _output_problem():
        raise problem
    return status


def _output_problem() -> Exception | None:
    """Why standard output cannot be written; what is still to be written to it is lost then."""
    place = "standard output"
    if sys.stdout is None:
        return OutputLostError(f"{place}: expected a place to write to, found it closed; open it")
    try:
        sys.stdout.flush()
    except OSError as error:
        _discard(1)
        broken = isinstance(error, BrokenPipeError)
        return error if broken else OutputLostError(explain(error, place))
    return None


def prepare_output() -> None:
    """Let every text be printed, on an ASCII terminal too, and to streams that are closed."""
    # Where a descriptor is closed, the next file that is opened would get its number.
    while (handle := os.open(os.devnull, os.O_RDWR)) <= 2:
        continue
    os.close(handle)
    codecs.register_error("torchwheel", _printable)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="torchwheel")


def _printable(error: UnicodeError) -> tuple[str | bytes, int]:
    """Write what an encoding lacks: the bytes of a file's name as they are, the rest as numbers."""
    try:
        return codecs.lookup_error("surrogateescape")(error)
    except UnicodeError:
        return codecs.lookup_error("backslashreplace")(error)


def _discard(descriptor: int) -> None:
    """Send what is written to a descriptor to nowhere."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, descriptor)
    os.close(null)
