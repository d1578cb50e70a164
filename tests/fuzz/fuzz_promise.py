"""Gives one input to a reader and judges whether the reader kept its promise.

The promise: the reader returns, or raises a TorchwheelError of one line, within its time and its
memory. It writes nothing outside its folder, leaves nothing in the temporary folder, starts no
program and opens no connection.
"""

import dataclasses
import gc
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import torchwheel
from torchwheel_runtime.errors import TorchwheelError

PACKAGE = Path(torchwheel.__file__).parent
MAX_LINE = 2000
"""Characters of a line of an error. Paths and quoted values are long, and still for a person."""
_PATIENCE = 6
"""The clock of a busy machine may run this much faster than the reader's own time."""
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# Of each event that changes a path: where its paths and the descriptors of their folders are.
_CHANGES = {
    "os.mkdir": ((0, 2),),
    "os.rename": ((0, 2), (1, 3)),
    "os.remove": ((0, 1),),
    "os.rmdir": ((0, 1),),
    "os.link": ((1, 3),),
    "os.symlink": ((1, 2),),
    "os.truncate": ((0, None),),
    "os.chmod": ((0, 2),),
    "os.chown": ((0, 3),),
}
_DEVICES = ("/dev/null", "/proc/self/")
_PROGRAMS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork")


class OvertimeError(BaseException):
    """The reader's time is up. No `except Exception` catches it."""


class ForbiddenError(BaseException):
    """The reader wanted to do what it may not; it was not done."""


@dataclasses.dataclass(frozen=True)
class Promise:
    """What a reader promises.

    Attributes:
        seconds: of its own time, for one input.
        mib: of memory beyond what the process has.
        lines: whether an error may have several lines, one for each mistake.
        other_errors: exceptions beside TorchwheelError that its caller handles.
    """

    seconds: float = 2
    mib: int = 256
    lines: bool = False
    other_errors: tuple[type[Exception], ...] = ()


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What came of one input.

    Attributes:
        refused: whether the reader raised an error that it may raise.
        fault: how it broke its promise; None if it kept it.
        place: the innermost function of torchwheel, of a fault that has a traceback.
        seconds: the reader's own time.
        mib: its memory.
    """

    refused: bool = False
    fault: str | None = None
    place: str = ""
    seconds: float = 0
    mib: float = 0


class Watch:
    """Watches readers in this process; one for each process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()
        self._temporary = self._folder / "temporary"
        self._temporary.mkdir()
        tempfile.tempdir = str(self._temporary)
        sys.dont_write_bytecode = True
        self._busy = False
        self._forbidden: str | None = None
        signal.signal(signal.SIGALRM, self._ring)
        sys.addaudithook(self._audit)

    def judge(self, read: Callable[[], object], promise: Promise) -> Verdict:
        """Call `read` once."""
        before = _peak_mib(reset=True)
        limit = _limit_memory(promise.mib)
        self._forbidden = None
        fault, place, refused = None, "", False
        begun = time.process_time()
        try:
            signal.setitimer(signal.ITIMER_REAL, promise.seconds * _PATIENCE)
            self._busy = True
            try:
                read()
            finally:
                self._busy = False
                signal.setitimer(signal.ITIMER_REAL, 0)
        except (TorchwheelError, *promise.other_errors) as error:
            refused = True
            if isinstance(error, TorchwheelError):
                fault = fault_of_text(str(error), lines=promise.lines)
            place = _place(error)
        except OvertimeError as error:
            fault, place = f"no answer in {promise.seconds * _PATIENCE:g} s", _place(error)
        except MemoryError as error:
            fault, place = f"wants more than {promise.mib} MiB of memory", _place(error)
        except BaseException as error:
            fault, place = f"raises {type(error).__name__}: {str(error)[:200]!r}", _place(error)
        finally:
            resource.setrlimit(resource.RLIMIT_AS, limit)
        seconds = time.process_time() - begun
        mib = max(0.0, _peak_mib() - before)
        fault = self._forbidden or fault or self._left_behind()
        if fault is None and seconds > promise.seconds:
            fault = f"takes {seconds:.1f} s; {promise.seconds:g} s promised"
        if fault is None and mib > promise.mib:
            fault = f"takes {mib:.0f} MiB; {promise.mib} MiB promised"
        if mib > 64:
            gc.collect()
        return Verdict(refused, fault, place if fault else "", seconds, mib)

    def _ring(self, *_: object) -> None:
        if self._busy:
            raise OvertimeError

    def _left_behind(self) -> str | None:
        left = list(self._temporary.iterdir())
        for path in left:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        return f"leaves {left[0].name!r} in the temporary folder" if left else None

    def _audit(self, event: str, args: tuple[object, ...]) -> None:
        if not self._busy or self._forbidden:
            return
        if event == "open":
            path, _, flags = args
            if isinstance(flags, int) and flags & _WRITES:
                self._require_inside(path, None, "writes")
        elif event in _CHANGES:
            for at, folder in _CHANGES[event]:
                self._require_inside(args[at], None if folder is None else args[folder], event)
        elif event in _PROGRAMS:
            self._forbid(f"starts a program: {args[:1]!r}")
        elif event == "socket.connect":
            self._forbid(f"opens a connection to {args[1]!r}")

    def _require_inside(self, path: object, folder: object, doing: str) -> None:
        if not isinstance(path, str | bytes):
            return  # a descriptor that is open
        name = os.fsdecode(path)
        if isinstance(folder, int) and folder >= 0:
            name = f"{Path(f'/proc/self/fd/{folder}').readlink()}/{name}"
        # The last part may be a link, which os.remove and the like do not follow.
        parent = Path(name).parent.resolve()
        if not parent.is_relative_to(self._folder) and not name.startswith(_DEVICES):
            self._forbid(f"{doing} outside its folder: {name!r}")

    def _forbid(self, what: str) -> None:
        self._forbidden = what
        raise ForbiddenError(what)


def fault_of_text(text: str, *, lines: bool = False) -> str | None:
    """Why an error's text is not one line for a person; None if it is."""
    rows = text.split("\n")
    if not text.strip():
        return "raises an error without a text"
    if len(rows) > 1 and not lines:
        return f"raises an error of {len(rows)} lines: {text[:200]!r}"
    if odd := next((sign for row in rows for sign in row if not sign.isprintable()), None):
        return f"raises an error with {odd!r} in it: {text[:200]!r}"
    if long := next((row for row in rows if len(row) > MAX_LINE), None):
        return f"raises a long error: {len(long)} characters: {long[:200]!r}"
    return None


def _place(error: BaseException) -> str:
    """E.g. "inspect/elf.py:read_library", of the innermost frame in torchwheel."""
    place = ""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        code = frame.f_code
        if code.co_filename.startswith(f"{PACKAGE}/"):
            place = f"{code.co_filename.removeprefix(f'{PACKAGE}/')}:{code.co_name}"
    return place


_PAGES = 4096 / (1 << 20)


def _peak_mib(*, reset: bool = False) -> float:
    """The most memory since the last reset, which sets it to the memory of now."""
    if reset:
        now = int(Path("/proc/self/statm").read_text().split()[1]) * _PAGES
        if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 > now + 4:
            Path("/proc/self/clear_refs").write_text("5")
        return now
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _limit_memory(mib: int) -> tuple[int, int]:
    """Limit the process to `mib` more address space, with room for libraries; the old limits."""
    old = resource.getrlimit(resource.RLIMIT_AS)
    now = int(Path("/proc/self/statm").read_text().split()[0]) * 4096
    resource.setrlimit(resource.RLIMIT_AS, (now + ((mib + 512) << 20), old[1]))
    return old
