"""Asks programs and the disk of this machine; no answer is an answer, and nothing is raised."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from torchwheel.machine.torch_model import Absent


def ask(command: Sequence[str], seconds: float = 20) -> str | Absent:
    """What a program prints, both streams; a failure is one line, its own where it gives one."""
    name = Path(command[0]).name
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            check=False,
            timeout=seconds,
        )
    except OSError as error:
        return Absent(f"{name} does not start: {error.strerror}")
    except subprocess.TimeoutExpired:
        return Absent(f"{name} gave no answer in {seconds:.0f} s")
    if done.returncode < 0:
        return Absent(f"{name} was ended by signal {-done.returncode}")
    if done.returncode:
        said = [line.strip() for line in done.stdout.splitlines() if line.strip()]
        return Absent(said[-1] if said else f"{name} failed with status {done.returncode}")
    return done.stdout


def is_file(path: Path) -> bool:
    """Whether a file is there that may be looked at."""
    try:
        return path.is_file()
    except OSError:
        return False


def text_of(path: Path) -> str | Absent:
    """What a file says."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        return Absent(f"{path}: {error.strerror}")


def real(path: Path) -> Path:
    """The path without links; as far as they lead, where they lead nowhere or in a circle."""
    return Path(os.path.realpath(path))
