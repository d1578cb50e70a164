"""The import of a package in a process of its own, so that a crash or a hang is a finding."""

import contextlib
import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Literal

ImportOutcome = Literal["imported", "raised", "killed", "left", "hung", "not found"]

SECONDS = 120
"""A first import of torch from a slow disk takes a minute."""
_GRACE_SECONDS = 10
_CHILD = Path(__file__).with_name("import_child.py")
_MAX_BYTES = 1 << 20
_FRAME = re.compile(r'^  File "(.*)", line (\d+) in ', re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class ImportResult:
    """How the import of a package went.

    Attributes:
        how: "left": the process ended itself without a word.
        words: the error and what it came from, the first cause last; the signal's name,
            the exit status, or how long it went on.
        file: the package's file; None if it is not found.
        folders: its folders.
        missing_modules: modules that the import looked for and did not find.
        unloaded: messages of the dynamic loader about libraries that it refused. Only the names of
            files and symbols in them are used: the loader has no codes.
        torch: whether torch was imported by the time of the error.
        where: the line of the package that it came to, e.g. "demo/__init__.py:3".
        libraries: files of native code that the process had loaded.
        status: what the package's run-time half says of it, as JSON.
    """

    how: ImportOutcome
    words: tuple[str, ...] = ()
    file: Path | None = None
    folders: tuple[Path, ...] = ()
    missing_modules: tuple[str, ...] = ()
    unloaded: tuple[str, ...] = ()
    torch: bool = True
    where: str | None = None
    libraries: tuple[Path, ...] = ()
    status: dict[str, Any] | None = None


def import_package(package: str, seconds: float = SECONDS) -> ImportResult:
    """Import a package with this Python, and look at what becomes of it."""
    reading, writing = os.pipe()
    with tempfile.TemporaryFile() as said, os.fdopen(reading, "rb") as answers:
        began = time.monotonic()
        try:
            process = subprocess.Popen(
                [sys.executable, "-X", "faulthandler", _CHILD, package, str(writing), str(seconds)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=said,
                pass_fds=[writing],
                # What it starts ends with it.
                start_new_session=True,
            )
        finally:
            os.close(writing)
        try:
            # The child ends itself in time; this is for one that is stopped, or holds the lock.
            status = process.wait(seconds + _GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            _kill_group(process)
        # At its time limit the child ends itself with status 1.
        hung = status is None or (status == 1 and time.monotonic() - began >= seconds)
        os.set_blocking(reading, False)
        facts = _parse_answers(answers.read(_MAX_BYTES) or b"")
        said.seek(max(0, said.seek(0, os.SEEK_END) - _MAX_BYTES))
        text = said.read().decode("utf-8", "replace")
        return _result(facts, None if hung else status, text, seconds)


def _kill_group(process: "subprocess.Popen[bytes]") -> None:
    """Kill the process and what it started, if any of them is left."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _parse_answers(answers: bytes) -> dict[str, Any]:
    """The child's answers in one; a line that was cut short is none."""
    facts: dict[str, Any] = {}
    for line in answers.splitlines():
        try:
            facts |= json.loads(line)
        except ValueError:
            break
    return facts


def _result(facts: dict[str, Any], status: int | None, said: str, seconds: float) -> ImportResult:
    spec = facts.get("spec")
    if spec is None:
        return ImportResult("not found" if "spec" in facts else "left", words=(_last_line(said),))
    file = Path(spec["origin"]) if spec["origin"] else None
    folders = tuple(map(Path, spec["folders"]))
    how, words = _outcome(facts, status, seconds)
    frames = facts.get("where") or [[f, int(n)] for f, n in reversed(_FRAME.findall(said))]
    return ImportResult(
        how=how,
        words=words,
        file=file,
        folders=folders,
        missing_modules=tuple(facts.get("missing_modules", ())),
        unloaded=tuple(facts.get("unloaded", ())),
        torch=facts.get("torch", True),
        where=_where(frames, folders),
        libraries=tuple(map(Path, facts.get("libraries", ()))),
        status=facts.get("status"),
    )


def _outcome(
    facts: dict[str, Any], status: int | None, seconds: float
) -> tuple[ImportOutcome, tuple[str, ...]]:
    """How it ended; a `status` of None means that it did not."""
    if "error" in facts:
        return "raised", tuple(facts["error"])
    if "status" in facts:
        return "imported", ()
    if status is None:
        return "hung", (f"{seconds:g} s",)
    if status < 0:
        return "killed", (_signal_name(-status),)
    return "left", (f"exit status {status}",)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _where(frames: list[Any], folders: tuple[Path, ...]) -> str | None:
    """The innermost line that is the package's own."""
    for file, line in reversed(frames):
        for folder in folders:
            if Path(file).is_relative_to(folder):
                return f"{Path(file).relative_to(folder.parent)}:{line}"
    return None


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else ""
