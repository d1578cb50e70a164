"""What programs started in their turn: its CPU time, and its end.

A signal that ends a command of torchwheel ends the programs that it runs too, and theirs: Linux
tells which processes those are. In a user's own process no signal handler is torchwheel's.
"""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

ENDING = threading.Event()
"""Set while a signal ends the programs: no other may start."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_GRACE = 5.0
"""Seconds that a program has to end by itself."""
_PR_SET_CHILD_SUBREAPER = 36
_SERVERS = ("(sccache",)
"""How /proc names programs that leave a server behind, which ends with the run that started it."""


def running_below(parent: int, sessions: set[int] | None) -> list[int]:
    """The running processes of `sessions`, or of all, below `parent`, as /proc shows them.

    The sessions of servers are added to `sessions`: a compiler may outlive the server that runs it.
    """
    running: list[tuple[int, int, int]] = []
    for name in os.listdir("/proc") if Path("/proc/self/stat").exists() else ():  # noqa: PTH208
        with contextlib.suppress(OSError, ValueError):
            text = Path("/proc", name, "stat").read_text("utf-8", "replace")
            # The program's name, in parentheses, may have any character.
            head, _, fields = text.rpartition(")")
            state, above, _, session, *_ = fields.split()
            if state != "Z":
                running.append((int(name), int(above), int(session)))
                # Only those below `parent` are taken: another user's server is not.
                if sessions is not None:
                    sessions |= {int(session)} if head.endswith(_SERVERS) else set()
    children: dict[int, list[int]] = {}
    for process, its_parent, its_session in running:
        if sessions is None or its_session in sessions:
            children.setdefault(its_parent, []).append(process)
    found = children.get(parent, [])
    for process in found:
        found += children.get(process, [])
    return found


def cpu_seconds_below(program: int) -> float | None:
    """CPU seconds of a program and all below it; None if a server elsewhere may work for it."""
    ticks, clients, servers = 0, 0, 0
    for number in [program, *running_below(program, None)]:
        with contextlib.suppress(OSError, ValueError):
            text = Path("/proc", str(number), "stat").read_text("utf-8", "replace")
            head, _, fields = text.rpartition(")")
            # utime, stime, and those of its children that have ended.
            ticks += sum(map(int, fields.split()[11:15]))
            if head.endswith(_SERVERS):
                # A client has a compiler's command; its server was started without arguments.
                is_client = Path("/proc", str(number), "cmdline").read_bytes().count(b"\0") > 1
                clients, servers = clients + is_client, servers + (not is_client)
    known = Path("/proc/self/stat").exists() and (servers or not clients)
    return ticks / os.sysconf("SC_CLK_TCK") if known else None


def end_tree(program: int) -> None:
    """Ask a program and all below it to end; kill those that still run after a while."""
    # Once it has ended, those below it are below another process.
    tree = [program, *running_below(program, None)]
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in filter(_is_running, tree):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, number)
        late = time.monotonic() + _GRACE
        while any(map(_is_running, tree)) and time.monotonic() < late:
            time.sleep(0.02)


def _is_running(process: int) -> bool:
    try:
        text = Path("/proc", str(process), "stat").read_text("utf-8", "replace")
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] != "Z"


@contextlib.contextmanager
def end_programs_on_signals() -> Iterator[None]:
    """For the block, SIGINT, SIGTERM and SIGHUP end all programs and raise KeyboardInterrupt.

    The block is left in the usual way, so that temporary files are removed. A second signal ends
    this process at once. For a command's own process: signals that it handles or ignores stay.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    ours = [n for n, old in before.items() if old in (signal.SIG_DFL, signal.default_int_handler)]
    enders: list[threading.Thread] = []

    def end(_number: int, _frame: object) -> None:
        ENDING.set()
        for number in ours:
            signal.signal(number, before[number])
        # In another thread, as this one leaves the block, and may wait for a program there.
        enders.append(threading.Thread(target=_end_programs))
        enders[-1].start()
        raise KeyboardInterrupt

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
    import ctypes  # noqa: PLC0415 - an extension's import comes to this file too

    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(adopt), 0, 0, 0)


def _end_programs() -> None:
    """Ask all programs below this process to end; kill those that still run after a while."""
    asked: set[int] = set()
    # What has another session ends by itself.
    sessions = {os.getsid(0)}
    begun = time.monotonic()
    while running := running_below(os.getpid(), sessions):
        late = time.monotonic() - begun > _GRACE
        for process in running:
            if late or process not in asked:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(process, signal.SIGKILL if late else signal.SIGTERM)
                asked.add(process)
        time.sleep(0.02)
