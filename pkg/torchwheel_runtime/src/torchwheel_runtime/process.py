"""Runs other programs: one way to start one, and one way to say in a line why it failed.

A program gets an empty standard input and its arguments as a list, never through a shell. Only
children that must outlive a call, be killed as a group or run without torchwheel use `subprocess`
themselves. Standard library only: the import of an extension asks programs.

A build that a user's own process started is asked by Linux to end when that process has ended.
"""

import contextlib
import dataclasses
import errno
import fcntl
import os
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Literal

from torchwheel_runtime.errors import PlacedError, program_error
from torchwheel_runtime.tasks import ENDING

Argument = str | os.PathLike[str]

CODES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
RAISED = re.compile(r"[\w.]*(Error|Exception)(: |$)")
"""The start of the line by which Python names the exception that ended a program."""
_ENDS_WITH_PARENT = """
import ctypes, os, signal, sys
parent, *command = sys.argv[1:]
PR_SET_PDEATHSIG = 1
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
if os.getppid() == int(parent):
    os.execv(command[0], command)
"""
"""Replaced by the command in its arguments, which gets SIGTERM when its parent ends."""


SAFE_PATH = "import sys; sys.path[:] = filter(None, sys.path)\n"
"""The first line of a script for `python -c`, which puts the working folder first on the path: a
file there would be imported in place of a module. As option -P, which came with Python 3.11."""
_MODULE = (
    f"{SAFE_PATH}import runpy; "
    "runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"
)


class NotRunError(PlacedError):
    """A program did not start, or gave no answer in time."""


class TimedOutError(NotRunError):
    """A program was killed, as it gave no answer in time, or was silent and idle for a long one."""


@dataclasses.dataclass(frozen=True)
class ProcessResult:
    """How a program ended.

    Attributes:
        status: its exit status; negative for the signal that ended it.
        output: its standard output; with its errors in it if they were merged.
        errors: its standard error, unless merged.
    """

    status: int
    output: str
    errors: str = ""

    def reason(
        self,
        named: re.Pattern[str] | None = None,
        *,
        first: bool = False,
        otherwise: str = "it said nothing",
    ) -> str:
        """The line that says why the program failed; `otherwise` if it printed nothing.

        Args:
            named: found in the lines that name an error; if no line has it, all lines count.
            first: whether the first of these lines says why, as a compiler's does, not the last.
            otherwise: the reason if there is no line.
        """
        lines = printed_lines(self.output) + printed_lines(self.errors)
        matching = [line for line in lines if named.search(line)] if named else []
        return (matching or lines or [otherwise])[0 if first else -1]

    def last_words(self, otherwise: str = "") -> str:
        """The end of standard error on one line, e.g. of a Python traceback."""
        return " ".join(CODES.sub("", self.errors).split()[-40:]) or otherwise

    def require(self, doing: str) -> None:
        """Raise `DOING: REASON` unless the program succeeded."""
        if self.status:
            raise program_error(f"{doing}: {self.reason()}")


def python_module(python: Argument, module: str) -> list[str]:
    """The start of a command that runs a module as `python -m` does, but not one of this folder.

    Unlike option -I it keeps PYTHONPATH and the user's packages, and unlike PYTHONSAFEPATH it
    changes nothing for the programs that the module starts, such as a setup.py.
    """
    return [os.fspath(python), "-c", _MODULE, module]


def printed_lines(text: str) -> list[str]:
    """The lines of a program's output that are not blank, without the colours of a terminal."""
    lines = CODES.sub("", text).splitlines()
    return [line.strip() for line in lines if line.strip()]


def run(
    command: Sequence[Argument],
    *,
    cwd: Path | str | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
    merge: bool = False,
    log: Path | None = None,
    undecodable: Literal["replace", "surrogateescape"] = "replace",
) -> ProcessResult:
    """Run a program to its end.

    Args:
        command: the program and its arguments.
        cwd: the folder it runs in.
        env: all its variables; those of this process if not given.
        timeout: seconds after which it is killed.
        merge: whether its standard error goes into its output.
        log: the file that gets its output and errors as they come; the result has them too.
        undecodable: how bytes that are not UTF-8 become text.

    Raises:
        NotRunError: it does not start.
        TimedOutError: it does not end in time.
    """
    _refuse_while_ending(command)
    with log.open("wb") if log else contextlib.nullcontext() as file:
        try:
            done = subprocess.run(
                command,
                cwd=cwd,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=file or subprocess.PIPE,
                stderr=subprocess.STDOUT if merge or log else subprocess.PIPE,
                timeout=timeout,
                check=False,
            )
        except OSError as error:
            raise _not_started(command, error) from error
        except subprocess.TimeoutExpired as error:
            raise TimedOutError(command[0], f"gave no answer in {timeout:.0f} s") from error
    output = log.read_bytes() if log else done.stdout
    return ProcessResult(
        done.returncode,
        output.decode("utf-8", undecodable),
        (done.stderr or b"").decode("utf-8", undecodable),
    )


def _refuse_while_ending(command: Sequence[Argument]) -> None:
    if ENDING.is_set():
        raise NotRunError(command[0], "not started, as this run was stopped")


def _not_started(command: Sequence[Argument], error: OSError) -> NotRunError:
    return NotRunError(command[0], f"does not start: {error.strerror}")


def stream_terminal(
    command: Sequence[Argument], say: Callable[[str], None], env: Mapping[str, str]
) -> int:
    """Run a program on a pseudo-terminal, where it shows progress; returns its exit status.

    It is asked to end when this process or thread ends, even by kill -9.

    Args:
        command: the path of the program and its arguments.
        say: gets each line as it comes, without the codes that draw lines over each other.
        env: all its variables.
    """
    ours, its = os.openpty()
    # Wide, so that the program does not shorten its lines.
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 1000, 0, 0))
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        try:
            process = start(ending_with_parent(command), its, env=env)
        finally:
            os.close(its)
        with supervise(process):
            for line in _terminal_lines(terminal):
                say(line)
    return process.returncode


def ending_with_parent(command: Sequence[Argument]) -> Sequence[Argument]:
    """The command, with a start that has Linux end it with this thread where that can be done.

    A function that the child calls before it starts the program would do the same, but may hang
    where this process has threads, and copies the memory map of a large process.
    """
    python = sys.executable or ""  # of a program with a Python in it, that program
    can = sys.platform == "linux" and Path(python).name.startswith("python")
    if not can or not os.access(command[0], os.X_OK):
        return command
    return [python, "-I", "-S", "-c", _ENDS_WITH_PARENT, str(os.getpid()), *command]


@contextlib.contextmanager
def supervise(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """Wait for a program at the end of the block; ask it to end if the block raises an error."""
    with process:
        try:
            yield process
        except BaseException:
            process.terminate()
            raise


def start(
    command: Sequence[Argument],
    output: int = subprocess.PIPE,
    *,
    cwd: Path | str | None = None,
    env: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a program that writes output and errors to `output`; see `run`."""
    _refuse_while_ending(command)
    try:
        return subprocess.Popen(
            command,
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    except OSError as error:
        raise _not_started(command, error) from error


def _terminal_lines(terminal: IO[bytes]) -> Iterator[str]:
    """Lines as they come; a line that is drawn again unchanged comes once."""
    rest, last = b"", ""
    while True:
        try:
            block = terminal.read(1 << 16)
        except OSError as error:
            # On Linux this means that the other end is closed.
            if error.errno != errno.EIO:
                raise
            block = b""
        # A status line ends with "erase to the end of the line", not with a line feed.
        *complete, rest = re.split(rb"[\r\n]+|\x1b\[K", rest + block)
        for part in [*complete, *([] if block else [rest])]:
            line = CODES.sub("", part.decode("utf-8", "replace")).rstrip()
            if line and line != last:
                yield line
                last = line
        if not block:
            return
