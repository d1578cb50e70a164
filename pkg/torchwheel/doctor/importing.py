"""Imports a package in a process of its own, so that a crash or a hang is a finding."""

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
"""Time limit: the first import of torch from a slow disk takes a minute."""
_GRACE_SECONDS = 10
_CHILD = Path(__file__).with_name("import_child.py")
_MAX_BYTES = 1 << 20
_FRAME = re.compile(r'^  File "(.*)", line (\d+) in ', re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class ImportResult:
    """The result of an import.

    Attributes:
        how: the outcome; "left": the package ended the process.
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
        status: its status in torchwheel.runtime, as JSON.
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
    status: dict[str, Any] | None = None


def import_package(package: str, seconds: float = SECONDS) -> ImportResult:
    """Import a package in another process of this Python."""
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
        facts = _parse_answers(answers.read(_MAX_BYTES) or b"")
        errors.seek(max(0, errors.seek(0, os.SEEK_END) - _MAX_BYTES))
        text = errors.read().decode("utf-8", "replace")
        return _result(facts, None if hung else status, text, seconds)


def _kill_group(process: "subprocess.Popen[bytes]") -> None:
    """Kill the process and its children."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _parse_answers(answers: bytes) -> dict[str, Any]:
    """The child's answers in one; a line that was cut short is left out."""
    facts: dict[str, Any] = {}
    for line in answers.splitlines():
        try:
            facts |= json.loads(line)
        except ValueError:
            break
    return facts


def _result(
    facts: dict[str, Any], status: int | None, stderr_text: str, seconds: float
) -> ImportResult:
    spec = facts.get("spec")
    if spec is None:
        return ImportResult(
            "not found" if "spec" in facts else "left", words=(_last_line(stderr_text),)
        )
    file = Path(spec["origin"]) if spec["origin"] else None
    folders = tuple(map(Path, spec["folders"]))
    how, words = _outcome(facts, status, seconds)
    frames = facts.get("where") or [[f, int(n)] for f, n in reversed(_FRAME.findall(stderr_text))]
    return ImportResult(
        how=how,
        words=words,
        file=file,
        folders=folders,
        missing_modules=tuple(facts.get("missing_modules", ())),
        unloaded=tuple(facts.get("unloaded", ())),
        torch=facts.get("torch", False),
        where=_where(frames, folders),
        libraries=tuple(map(Path, facts.get("libraries", ()))),
        status=facts.get("status"),
    )


def _outcome(
    facts: dict[str, Any], status: int | None, seconds: float
) -> tuple[ImportOutcome, tuple[str, ...]]:
    """The outcome and its details; `status` is None if the process did not end."""
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
    """The innermost line in the package's own files."""
    for file, line in reversed(frames):
        for folder in folders:
            if Path(file).is_relative_to(folder):
                return f"{Path(file).relative_to(folder.parent)}:{line}"
    return None


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else ""
