"""Imports a package in a process of its own, so that a crash or a hang is a finding."""

import contextlib
import dataclasses
import importlib.machinery
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Literal

from torchwheel_runtime.doctor import SECONDS
from torchwheel_runtime.doctor.import_child import innermost_line
from torchwheel_runtime.errors import MalformedError
from torchwheel_runtime.json_files import parse_json
from torchwheel_runtime.runtime.status import ExtensionStatus

ImportOutcome = Literal["imported", "raised", "killed", "left", "hung", "not found", "not tried"]

_GRACE_SECONDS = 3
_CHILD = Path(__file__).with_name("import_child.py")
_MAX_BYTES = 1 << 20
_FRAME = re.compile(r'^  File "(.*)", line (\d+) in ', re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class ImportResult:
    """The result of an import.

    Attributes:
        how: the outcome; "left": the package ended the process; "not tried": its files are read.
        words: details of the outcome: the error and its causes, the first cause last; or the
            signal's name, the exit status, or the time limit.
        file: the package's file; None if the package was not found.
        folders: its folders.
        missing_modules: modules that the import looked for and did not find.
        unloaded: messages of the dynamic loader about libraries that it refused. Only the names of
            files and symbols in them are used: the loader has no codes.
        torch: whether torch was imported without an error, by the time of the package's error if
            it raised one; False if the process could not answer.
        where: the last line of the package that ran, e.g. "demo/__init__.py:3".
        libraries: native libraries that the process had loaded.
        status: its status in torchwheel_runtime.runtime.
    """

    how: ImportOutcome
    words: tuple[str, ...] = ()
    file: Path | None = None
    folders: tuple[Path, ...] = ()
    missing_modules: tuple[str, ...] = ()
    unloaded: tuple[str, ...] = ()
    torch: bool = False
    where: str | None = None
    libraries: tuple[Path, ...] = ()
    status: ExtensionStatus | None = None


def import_package(package: str, seconds: float = SECONDS) -> ImportResult:
    """Import a package in another process of this Python, which finds nothing in this folder.

    If this folder has one of that name, which `python -c` would import, the result has its file.
    """
    reading, writing = os.pipe()
    with tempfile.TemporaryFile() as errors, os.fdopen(reading, "rb") as answers:
        began = time.monotonic()
        try:
            process = subprocess.Popen(
                [sys.executable, "-X", "faulthandler", _CHILD, package, str(writing), str(seconds)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                pass_fds=[writing],
                # A group of its own, so that its children end with it.
                start_new_session=True,
            )
        finally:
            os.close(writing)
        try:
            # The child ends itself at its time limit, unless it is stopped.
            status = process.wait(seconds + _GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            _kill_group(process)
        # At its time limit the child ends itself with status 1.
        hung = status is None or (status == 1 and time.monotonic() - began >= seconds)
        os.set_blocking(reading, False)
        answer = _parse_answers(answers.read(_MAX_BYTES) or b"")
        errors.seek(max(0, errors.seek(0, os.SEEK_END) - _MAX_BYTES))
        text = errors.read().decode("utf-8", "replace")
        result = _result(answer, None if hung else status, text, seconds)
    here = importlib.machinery.PathFinder.find_spec(package, [""])
    if result.file and here and here.origin:
        return dataclasses.replace(result, file=Path(here.origin))
    return result


def _kill_group(process: "subprocess.Popen[bytes]") -> None:
    """Kill the process and its children."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _parse_answers(answers: bytes) -> ImportResult | None:
    """The child's last answer; one that was cut short or is malformed counts as none."""
    for line in reversed(answers.splitlines()):
        with contextlib.suppress(MalformedError):
            return parse_json(line, ImportResult, "the answer")
    return None


def _result(
    answer: ImportResult | None, status: int | None, stderr_text: str, seconds: float
) -> ImportResult:
    """The child's last answer; if that is "left", with what ended the process.

    `status` is None if the process did not end.
    """
    if answer is None or answer.how == "not found":
        last_line = stderr_text.strip().rpartition("\n")[2]
        return dataclasses.replace(answer or ImportResult("left"), words=(last_line,))
    if answer.how in ("imported", "raised"):
        return answer
    printed = reversed(_FRAME.findall(stderr_text))
    where = innermost_line(printed, map(str, answer.folders))
    how, words = _outcome(status, stderr_text, seconds)
    return dataclasses.replace(answer, how=how, words=words, where=where)


def _outcome(
    status: int | None, stderr_text: str, seconds: float
) -> tuple[ImportOutcome, tuple[str, ...]]:
    """What ended the process, and its details."""
    if status is None:
        return "hung", (f"{seconds:g} s",)
    if status < 0:
        return "killed", (_signal_name(-status),)
    # The loader says why it ends a process, such as a version of a library that is not needed.
    of_loader = [line for line in stderr_text.splitlines() if "detected by ld.so" in line]
    return "left", (": ".join([f"exit status {status}", *of_loader[-1:]]),)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
