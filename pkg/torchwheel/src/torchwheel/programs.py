"""The long programs of a command: each line as it comes, an end to one that hangs, and to all.

A signal that ends a command of torchwheel ends the programs that it runs too, and theirs: Linux
tells which processes those are. In a user's own process no signal handler is torchwheel's.
"""

import contextlib
import io
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from torchwheel_runtime.console import show_output
from torchwheel_runtime.errors import InterruptedRunError
from torchwheel_runtime.process import (
    CODES,
    Argument,
    TimedOutError,
    start,
    supervise,
)
from torchwheel_runtime.tasks import ENDING

SILENCE = 1800.0
"""Seconds after which a build that prints nothing and computes nothing counts as one that hangs."""
_IDLE = 0.01
"""The share of a core up to which a program computes nothing: a loop that waits is below it."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_GRACE = 5.0
"""Seconds that a program has to end by itself."""
_PR_SET_CHILD_SUBREAPER = 36
_SERVERS = ("(sccache",)
"""How /proc names programs that leave a server behind, which ends with the run that started it."""
_PROC = Path("/proc")


def stream(
    command: Sequence[Argument],
    say: Callable[[str], None],
    *,
    log: IO[str],
    cwd: Path | str | None = None,
    env: Mapping[str, str] | None = None,
    silence: float | None = None,
    cpu_seconds: Callable[[], float | None] | None = None,
) -> int:
    """Run a program and pass on each line that it prints as it comes; returns its exit status.

    Args:
        command: the program and its arguments.
        say: gets each line of output and errors, without its end and the codes of its colours.
        log: an open file that gets each line too.
        cwd: the folder it runs in.
        env: all its variables; those of this process if not given.
        silence: seconds without a line and without CPU time after which it is ended, with all
            that it started; None for no limit.
        cpu_seconds: the CPU time of the program so far, where others work for it; None for one
            that is not known, which counts as work. By default that of the processes below it.

    Raises:
        NotRunError: it does not start.
        TimedOutError: it was ended for its silence.
    """
    with supervise(start(command, cwd=cwd, env=env)) as process:
        watch = _Watch(process.pid, silence, cpu_seconds) if silence else None
        with watch or contextlib.nullcontext():
            if process.stdout is not None:
                for line in io.TextIOWrapper(process.stdout, encoding="utf-8", errors="replace"):
                    if watch:
                        watch.heard = time.monotonic()
                    log.write(line)
                    show_output(line)
                    say(CODES.sub("", line.rstrip("\n")))
    if watch and watch.stalled:
        says = f"printed nothing and computed nothing for {silence:.0f} s, and was ended"
        raise TimedOutError(command[0], says)
    return process.returncode


class _Watch(threading.Thread):
    """Ends a program that neither prints nor computes; `heard` is the time of its last line."""

    def __init__(
        self, program: int, silence: float, cpu_seconds: Callable[[], float | None] | None
    ) -> None:
        super().__init__(daemon=True)
        self.program, self.silence = program, silence
        self.cpu_seconds = cpu_seconds or (lambda: cpu_seconds_below(program))
        self.heard = time.monotonic()
        self.stalled = False
        self._done = threading.Event()

    def __enter__(self) -> None:
        self.start()

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self.join()

    def run(self) -> None:
        worked, before = time.monotonic(), self.cpu_seconds()
        while not self._done.wait(self.silence / 10):
            now = self.cpu_seconds()
            # A process that ends takes its time along: that is work too.
            if now is None or before is None or abs(now - before) > _IDLE * self.silence:
                worked, before = time.monotonic(), now
            elif time.monotonic() - max(worked, self.heard) > self.silence:
                self.stalled = True
                end_tree(self.program)
                return


class _Process(NamedTuple):
    """A running process, as /proc shows it; `ticks` is its CPU time, with its ended children's."""

    parent: int
    session: int
    ticks: int
    is_server: bool


def _process(number: int) -> _Process | None:
    """The running process of that number, if there is one."""
    try:
        text = (_PROC / str(number) / "stat").read_text("utf-8", "replace")
    except OSError:
        return None
    # The program's name, in parentheses, may have any character.
    head, _, rest = text.rpartition(")")
    state, parent, _, session, *fields = rest.split()
    if state == "Z":
        return None
    ticks = sum(map(int, fields[7:11]))
    return _Process(int(parent), int(session), ticks, head.endswith(_SERVERS))


def running_below(parent: int, sessions: set[int] | None) -> list[int]:
    """The running processes of `sessions`, or of all, below `parent`.

    The sessions of servers are added to `sessions`: a compiler may outlive the server that runs it.
    Only those below `parent` are taken: another user's server is not.
    """
    names = os.listdir(_PROC) if (_PROC / "self" / "stat").exists() else ()  # noqa: PTH208
    numbers = [int(name) for name in names if name.isdigit()]
    running = {number: process for number in numbers if (process := _process(number))}
    if sessions is not None:
        sessions |= {process.session for process in running.values() if process.is_server}
    children: dict[int, list[int]] = {}
    for number, process in running.items():
        if sessions is None or process.session in sessions:
            children.setdefault(process.parent, []).append(number)
    found = children.get(parent, [])
    for number in found:
        found += children.get(number, [])
    return found


def cpu_seconds_below(program: int) -> float | None:
    """CPU seconds of a program and all below it; None if a server elsewhere may work for it."""
    ticks, clients, servers = 0, 0, 0
    for number in [program, *running_below(program, None)]:
        process = _process(number)
        ticks += process.ticks if process else 0
        if process and process.is_server:
            with contextlib.suppress(OSError):
                # A client has a compiler's command; its server was started without arguments.
                is_client = (_PROC / str(number) / "cmdline").read_bytes().count(b"\0") > 1
                clients, servers = clients + is_client, servers + (not is_client)
    known = (_PROC / "self" / "stat").exists() and (servers or not clients)
    return ticks / os.sysconf("SC_CLK_TCK") if known else None


def end_tree(program: int) -> None:
    """Ask a program and all below it to end; kill those that still run after a while."""
    # Once it has ended, those below it are below another process.
    tree = [program, *running_below(program, None)]
    for signum in (signal.SIGTERM, signal.SIGKILL):
        _send(signum, filter(_process, tree))
        late = time.monotonic() + _GRACE
        while any(map(_process, tree)) and time.monotonic() < late:
            time.sleep(0.02)


def _send(signum: int, numbers: Iterable[int]) -> None:
    for number in numbers:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(number, signum)


@contextlib.contextmanager
def end_programs_on_signals() -> Iterator[None]:
    """For the block, SIGINT, SIGTERM and SIGHUP end all programs, then this one.

    The block is left in the usual way, so that temporary files are removed. A second signal ends
    this process at once. For a command's own process: signals that it handles or ignores stay.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    ours = [n for n, old in before.items() if old in (signal.SIG_DFL, signal.default_int_handler)]
    enders: list[threading.Thread] = []

    def end(number: int, _frame: object) -> None:
        ENDING.set()
        for one in ours:
            signal.signal(one, before[one])
        # In another thread, as this one leaves the block, and may wait for a program there.
        enders.append(threading.Thread(target=_end_programs))
        enders[-1].start()
        raise InterruptedRunError(number)

    _adopt_orphans(True)
    for number in ours:
        signal.signal(number, end)
    try:
        yield
    finally:
        for ender in enders:
            ender.join()
        for number in ours:
            signal.signal(number, before[number])
        _adopt_orphans(False)
        ENDING.clear()


def _adopt_orphans(adopt: bool) -> None:
    """Be the parent of what a program leaves running, so that it can be found; or no more."""
    import ctypes  # noqa: PLC0415 - a container's Python may lack it, and needs none

    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(adopt), 0, 0, 0)


def _end_programs() -> None:
    """Ask all programs below this process to end; kill those that still run after a while."""
    asked: set[int] = set()
    # What has another session ends by itself.
    sessions = {os.getsid(0)}
    begun = time.monotonic()
    # One look can miss what a program started just before it ended: the second sees it as ours.
    while running := (running_below(os.getpid(), sessions) or running_below(os.getpid(), sessions)):
        late = time.monotonic() - begun > _GRACE
        if late:
            _send(signal.SIGKILL, running)
        else:
            _send(signal.SIGTERM, set(running) - asked)
            asked.update(running)
        time.sleep(0.02)
