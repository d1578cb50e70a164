"""The progress of a run: a live line on a terminal, plain lines elsewhere; and error lines."""

import codecs
import contextlib
import io
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Literal, Protocol, TextIO, cast

from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.os_errors import explain
from torchwheel_runtime.text import (
    escape,
    escape_painted,
    hide_secrets,
    paint,
    use_colours,
)


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


Colour = Literal["auto", "always", "never"]


class _Settings:
    """What the command line says of all output of this process.

    Attributes:
        colour: whether a stream gets colours.
        quiet: whether no progress is shown: results and errors alone.
        verbose: whether the output of programs is shown.
    """

    colour: Colour = "auto"
    quiet = False
    verbose = False


_SETTINGS = _Settings()


def set_output(colour: Colour, *, quiet: bool = False, verbose: bool = False) -> None:
    """Set what is shown, and where in colours, until the next call."""
    _SETTINGS.colour, _SETTINGS.quiet, _SETTINGS.verbose = colour, quiet, verbose
    use_colours(any(map(_has_colours, (sys.stdout, sys.stderr))))


def _has_colours(stream: TextIO | None) -> bool:
    """Whether a stream gets colours: a terminal's, if no variable says otherwise."""
    if _SETTINGS.colour != "auto":
        return _SETTINGS.colour == "always"
    if os.environ.get("NO_COLOR") or stream is None:
        return False
    terminal = os.environ.get("TERM") != "dumb" and stream.isatty()
    return bool(os.environ.get("FORCE_COLOR")) or terminal


def show_output(text: str) -> None:
    """Show what a program printed, if that was asked for."""
    if _SETTINGS.verbose and text and sys.stderr is not None:
        print(text.rstrip("\n"), file=sys.stderr, flush=True)


class Escaping:
    """A standard stream, and what is foreign in a text cannot draw on the terminal through it."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        """Write a text, escaped, in the place of a live line."""
        for terminal in _LIVE:
            terminal.erase()
        self.stream.write(escape_painted(text, coloured=_has_colours(self.stream)))
        return len(text)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the stream has
        return getattr(self.stream, name)


def escape_output() -> None:
    """Escape whatever is printed from now on, by anybody in this process."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and not isinstance(stream, Escaping):
            setattr(sys, name, Escaping(stream))


_ERASE = "\r\x1b[K"
"""To the start of the line, and erase it."""


SILENCE = 60.0
"""Seconds without a line after which a log is told that a step still runs."""


class Terminal:
    """Shows the running step as a live line on a terminal; prints plain lines otherwise.

    Attributes:
        is_live: whether a step is shown, and not printed.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        found = None if _SETTINGS.quiet else cast("TextIO | None", stream or sys.stderr)
        # The codes that draw the live line go past the escaping, and each text is escaped here.
        self._stream = found.stream if isinstance(found, Escaping) else found
        self.is_live = self._stream is not None and self._stream.isatty()
        self._start = time.monotonic()
        self._lock = threading.RLock()
        self._is_drawn = False
        self._step, self._began, self._spoke = "", self._start, self._start

    @contextlib.contextmanager
    def live_line(self) -> Iterator["Terminal"]:
        """Show the live line while the block runs; off a terminal, say again what takes minutes."""
        before = sys.stdout, sys.stderr
        done = threading.Event()
        if self.is_live:
            escape_output()
            _LIVE.append(self)
        else:
            threading.Thread(target=self._remind, args=(done,), daemon=True).start()
        try:
            yield self
        finally:
            done.set()
            if self.is_live:
                _LIVE.remove(self)
                self.erase()
                sys.stdout, sys.stderr = before

    def say(self, text: str) -> None:
        """Print a line that stays, after the seconds since the start."""
        seconds = time.monotonic() - self._start
        coloured = _has_colours(self._stream)
        line = f"{seconds:6.1f}s  {_one_line(text, coloured=coloured)}".expandtabs(8)
        with self._lock:
            self.erase()
            self._write(f"{line}\n")
            self._spoke = time.monotonic()

    def step(self, text: str) -> None:
        """Show `text` as the current step."""
        if not self.is_live:
            with self._lock:
                self._step, self._began = text, time.monotonic()
                self.say(f"  {text}")
            return
        width = shutil.get_terminal_size().columns
        with self._lock:
            # The cursor stays at the end, so a line that is full would be wrapped.
            self._write(f"{_ERASE}{_one_line(text).expandtabs(8)[: max(1, width - 1)]}")
            self._is_drawn = True

    def _remind(self, done: threading.Event) -> None:
        """Until `done`, say after each minute of silence which step is at work, and how long."""
        while not done.wait(SILENCE / 10):
            with self._lock:
                now = time.monotonic()
                if self._step and now - self._spoke >= SILENCE and not done.is_set():
                    self.say(f"  {self._step}: for {now - self._began:.0f} s now")

    def erase(self) -> None:
        """Erase the live line, so that something can be printed in its place."""
        with self._lock:
            if self._is_drawn:
                self._is_drawn = False
                self._write(_ERASE)

    def _write(self, text: str) -> None:
        if self._stream is None:  # its descriptor is closed
            return
        try:
            self._stream.write(text)
        except UnicodeEncodeError:
            encoding = self._stream.encoding
            self._stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        self._stream.flush()


_LIVE: list[Terminal] = []
"""The terminals whose live line is shown."""


def _one_line(text: str, *, coloured: bool = False) -> str:
    """A line that somebody says, e.g. a compiler: it may have tabs, and is one line."""
    return escape_painted(text, coloured=coloured).replace("\n", "\\u000a")


def print_error(*lines: str) -> None:
    """Print lines on the error stream; if that cannot be written, the exit status has to do."""
    if sys.stderr is None:  # its descriptor is closed
        return
    try:
        # A name in the text could move the cursor, or show its letters in another order.
        text = "\n".join(escape(hide_secrets(line)) for line in lines)
        print(f"{paint('torchwheel:', 'bad')} {text}", file=sys.stderr, flush=True)
    except OSError:
        _discard(2)


_FAULT = "; this is a fault of torchwheel: `torchwheel --debug {name} …` shows where; report it"


def run_command(name: str, run: Callable[[], int], *, debug: bool = False) -> int:
    """Run a command and return its exit status; every error is one line.

    Args:
        name: the command, for messages.
        run: carries it out and returns the exit status.
        debug: show the traceback of an error.
    """
    escape_output()
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
        print_error(*map(str, error.args))
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
        return TorchwheelError(f"{place}: expected a place to write to, found it closed; open it")
    try:
        sys.stdout.flush()
    except OSError as error:
        _discard(1)
        broken = isinstance(error, BrokenPipeError)
        return error if broken else TorchwheelError(explain(error, place))
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
    set_output("auto")


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
