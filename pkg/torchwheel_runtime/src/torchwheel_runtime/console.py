"""The progress of a run: a live line on a terminal, plain lines elsewhere; and error lines."""

import codecs
import contextlib
import io
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, Literal, Protocol, TextIO, cast

from torchwheel_runtime.actions_log import Groups, error_command, escape_commands, is_in_actions
from torchwheel_runtime.errors import InterruptedRunError, TorchwheelError
from torchwheel_runtime.os_errors import explain
from torchwheel_runtime.tasks import (
    ENDING,
    HEARING,
    Count,
    EndedStep,
    Task,
    TaskPath,
    Tasks,
    name_of,
)
from torchwheel_runtime.text import (
    WIDTH,
    clock_text,
    cut_columns,
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

    def step(self, text: str, count: Count | None = None) -> None:
        """Show the current step of the running task; see `Task.change`."""

    def task(self, name: str) -> contextlib.AbstractContextManager[Task]:
        """The block is a task of the run, or a part of the task around it."""

    def plan(self, seconds: Mapping[TaskPath, float | None]) -> None:
        """Count tasks that are to come, with the seconds that they took in the last run."""


class Quiet:
    """Progress that prints nothing."""

    def say(self, text: str) -> None:
        """Print nothing."""

    def step(self, text: str, count: Count | None = None) -> None:
        """Print nothing."""

    @contextlib.contextmanager
    def task(self, name: str) -> Iterator[Task]:
        """Print nothing."""
        yield Task((name,))

    def plan(self, seconds: Mapping[TaskPath, float | None]) -> None:
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
    """A standard stream, and what is foreign in a text cannot draw on the terminal through it.

    Nor can it be a command in the log of GitHub Actions.

    Attributes:
        stream: the stream itself.
        line: the last line that is written, as far as it has no end yet.
    """

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.line = ""
        self._in_actions = is_in_actions()

    def write(self, text: str) -> int:
        """Write a text, escaped, in the place of a live line."""
        for terminal in _LIVE:
            terminal.erase()
        shown = text
        if self._in_actions:
            shown = escape_commands(text, open_line=bool(self.line.strip()))
        self.line = f"{self.line}{text}".rpartition("\n")[2][-_OPEN:]
        self.stream.write(escape_painted(shown, coloured=_has_colours(self.stream)))
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


_OPEN = 1000
"""The most characters of a line without an end that are kept."""
SILENCE = 60.0
"""Seconds without a line after which a log is told that a step still runs."""
_TICK = 1.0
"""Seconds after which the live line is drawn again."""
_CURRENT: ContextVar[Task | None] = ContextVar("task", default=None)
"""The task that the running code belongs to; a thread gets it with the context of its starter."""


class Terminal:
    """Shows what runs as a live line on a terminal; prints a line for each end otherwise.

    Attributes:
        is_live: whether what runs is shown.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        found = None if _SETTINGS.quiet else cast("TextIO | None", stream or sys.stderr)
        # The codes that draw the live line go past the escaping, and each text is escaped here.
        self._stream = found.stream if isinstance(found, Escaping) else found
        on_screen = self._stream is not None and self._stream.isatty()
        self.is_live = on_screen and os.environ.get("TERM") != "dumb"
        self._start = time.monotonic()
        self._lock = threading.RLock()
        self._is_drawn = False
        self._spoke = self._start
        self._tasks = Tasks(self._start)
        self._told: BaseException | None = None
        self._groups = Groups(self._write) if is_in_actions() and not self.is_live else None

    @contextlib.contextmanager
    def live_line(self) -> Iterator["Terminal"]:
        """Show the live line while the block runs; off a terminal, say again what takes minutes."""
        before = sys.stdout, sys.stderr
        done = threading.Event()
        if self.is_live:
            escape_output()
            _LIVE.append(self)
        ticking = self._redraw if self.is_live else self._remind
        threading.Thread(target=ticking, args=(done,), daemon=True).start()
        try:
            yield self
            self._say_ended(self._tasks.run, self._tasks.run.end_steps(time.monotonic()))
        finally:
            with self._lock:
                done.set()
            if self.is_live:
                _LIVE.remove(self)
                self.erase()
                sys.stdout, sys.stderr = before

    def say(self, text: str) -> None:
        """Print a line that stays, after the seconds since the start."""
        seconds = time.monotonic() - self._start
        coloured = _has_colours(self._stream)
        line = f"{seconds:6.1f}s  {_one_line(text, coloured=coloured)}\n".expandtabs(8)
        with self._lock:
            self.erase()
            group = (_CURRENT.get() or self._tasks.run).path[:1]
            if self._groups:
                self._groups.line("".join(group), line)
            else:
                self._write(line)
            self._spoke = time.monotonic()

    def step(self, text: str, count: Count | None = None) -> None:
        """Show `text` as the current step of the running task, or as a step that ended."""
        task = _CURRENT.get() or self._tasks.run
        with self._lock:
            self._say_ended(task, task.change(text, count, time.monotonic()))
            self._draw()

    def plan(self, seconds: Mapping[TaskPath, float | None]) -> None:
        """Count tasks that are to come."""
        with self._lock:
            self._tasks.plan(seconds)

    @contextlib.contextmanager
    def task(self, name: str) -> Iterator[Task]:
        """Show the block as a task, or as a part of the task around it, and say how it ended."""
        outer = _CURRENT.get() or self._tasks.run
        with self._lock:
            self._say_ended(outer, outer.end_steps(time.monotonic()))
            task = self._tasks.begin((*outer.path, name), time.monotonic())
            if self._groups and not outer.path:
                self._groups.begin(name)
            self._draw()
        before = _CURRENT.set(task)
        error: BaseException | None = None
        try:
            yield task
        except BaseException as raised:
            error = raised
            raise
        finally:
            now = time.monotonic()
            # A compiler may hear of ^C before this process does, and end as if it had failed.
            patience = 0 if error is self._told else HEARING
            stopped = ENDING.wait(patience) if error else False
            with self._lock:
                self._end_task(task, now, error, stopped=stopped)
            _CURRENT.reset(before)

    def _end_task(
        self, task: Task, now: float, error: BaseException | None, *, stopped: bool
    ) -> None:
        steps, seconds = task.end_steps(now), now - task.began
        self._tasks.end(task)
        indent = "" if len(task.path) == 1 else "  "
        if error is None:
            self._say_ended(task, steps)
            result = f": {task.result}" if task.result else ""
            self._say_end(f"{indent}{name_of(task)}{result}", seconds, keep=bool(result))
        elif not indent or error is not self._told:
            ended = "stopped" if stopped or not isinstance(error, Exception) else "FAILED"
            # The others at work are waited for, which can take minutes: say now why it failed.
            why = f": {error}" if indent and ended == "FAILED" else ""
            self.say(f"{indent}{name_of(task)}: {ended} after {seconds:.1f} s{why}")
            self._told = error
        if self._groups and not indent:
            self._groups.end(task.path[0])

    def _say_ended(self, task: Task, steps: list[EndedStep]) -> None:
        for step in steps:
            self._say_end(f"  {name_of(task, step.text)}", step.seconds)

    def _say_end(self, text: str, seconds: float | None, *, keep: bool = False) -> None:
        """Say what ended, and after how long; on a terminal only what is to be kept there."""
        if keep or not self.is_live:
            self.say(text if seconds is None else f"{text}  {seconds:.1f} s")

    def _remind(self, done: threading.Event) -> None:
        """Until `done`, say after each minute of silence what is at work, and how long."""
        while not done.wait(SILENCE / 10):
            with self._lock:
                now = time.monotonic()
                at_work = self._tasks.at_work()
                if at_work and now - self._spoke >= SILENCE and not done.is_set():
                    name, began = at_work[-1]
                    others = f", and {len(at_work) - 1} more" if at_work[1:] else ""
                    self.say(f"  {self._progress()}{name}: for {now - began:.0f} s now{others}")

    def _redraw(self, done: threading.Event) -> None:
        """Until `done`, draw the live line again after each second."""
        while not done.wait(_TICK):
            with self._lock:
                if not done.is_set():
                    self._draw()

    def _progress(self) -> str:
        """How many are done of all, and how long the rest may take; empty where nothing counts."""
        count, left = self._tasks.count, self._tasks.seconds_left(time.monotonic())
        text = f"{count.done}/{count.total}  " if count.total else ""
        return f"{text}about {clock_text(left)} left  " if text and left and left >= 1 else text

    def _draw(self) -> None:
        """Draw the live line, unless something is printed there that has no end yet."""
        at_work = self._tasks.at_work()
        if not self.is_live or not at_work or _has_open_line():
            return
        others = f"  +{len(at_work) - 1}" if at_work[1:] else ""
        start = f"{clock_text(time.monotonic() - self._start)}  {self._progress()}"
        # The cursor stays at the end, so a line that is full would be wrapped.
        width = max(1, self._width() - 1)
        room = max(0, width - len(start) - len(others))
        text = f"{start}{cut_columns(_one_line(at_work[0][0]).expandtabs(8), room)}{others}"
        self._write(f"{_ERASE}{text[:width]}")
        self._is_drawn = True

    def _width(self) -> int:
        """The columns of the terminal now; COLUMNS says otherwise."""
        asked = os.environ.get("COLUMNS", "")
        if asked.isdecimal() and 0 < int(asked) < _OPEN:
            return int(asked)
        try:
            return os.get_terminal_size(cast("TextIO", self._stream).fileno()).columns or WIDTH
        except (OSError, ValueError):
            return WIDTH

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


def _has_open_line() -> bool:
    """Whether a line without an end is printed on the terminal."""
    streams = (sys.stdout, sys.stderr)
    return any(isinstance(one, Escaping) and one.line and one.isatty() for one in streams)


_LIVE: list[Terminal] = []
"""The terminals whose live line is shown."""


def _one_line(text: str, *, coloured: bool = False) -> str:
    """A line that somebody says, e.g. a compiler: it may have tabs, and is one line."""
    return escape_painted(text, coloured=coloured).replace("\n", "\\u000a")


def print_error(*lines: str, failed: bool = False) -> None:
    """Print lines on the error stream; if that cannot be written, the exit status has to do.

    Args:
        lines: the lines.
        failed: whether the command failed, which GitHub Actions shows beside its log.
    """
    if sys.stderr is None:  # its descriptor is closed
        return
    try:
        # A name in the text could move the cursor, or show its letters in another order.
        text = "\n".join(escape(hide_secrets(line)) for line in lines)
        if failed and is_in_actions() and isinstance(sys.stderr, Escaping):
            sys.stderr.stream.write(error_command(f"torchwheel: {text}"))
            sys.stderr.flush()
        else:
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
    except KeyboardInterrupt as stop:
        print_error("stopped; run again to go on", *map(str, stop.args))
        return stop.status if isinstance(stop, InterruptedRunError) else 130
    except BrokenPipeError:  # the reader of our output went away, as `head` does
        return 1
    except TorchwheelError as error:
        if debug:
            raise
        print_error(*map(str, error.args), failed=True)
        return error.status
    except Exception as error:
        if debug:
            raise
        fault = "" if isinstance(error, OSError) else _FAULT.format(name=name)
        print_error(f"{explain(error, name)}{fault}", failed=True)
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
