"""Asks programs, the disk and the platform. A missing answer is an answer; nothing is raised."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from torchwheel import process
from torchwheel.machine.facts import Absent


def program_output(command: Sequence[str], seconds: float = 20) -> str | Absent:
    """What a program prints, both streams; a failure is one line, its own where it gives one."""
    name = Path(command[0]).name
    try:
        done = process.run(command, merge=True, timeout=seconds)
    except process.NotRunError as error:
        return Absent(f"{name} {error.reason}")
    if done.status < 0:
        return Absent(f"{name} was ended by signal {-done.status}")
    if done.status:
        return Absent(done.reason(otherwise=f"{name} failed with status {done.status}"))
    return done.output


def is_file(path: Path) -> bool:
    """Whether a file is there that may be looked at."""
    try:
        return path.is_file()
    except OSError:
        return False


def file_text(path: Path) -> str | Absent:
    """What a file says."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        return Absent(f"{path}: {error.strerror}")


def real_path(path: Path) -> Path:
    """The path without links; as far as they lead, where they lead nowhere or in a circle."""
    return Path(os.path.realpath(path))


def python_version() -> str:
    """The running Python, e.g. "3.12.3"."""
    return ".".join(map(str, sys.version_info[:3]))


def platform_tag() -> str:
    """The platform as wheels name it, e.g. "linux_x86_64"."""
    import sysconfig  # noqa: PLC0415 - an import asks for the C library alone

    return sysconfig.get_platform().replace("-", "_").replace(".", "_")


def glibc_version() -> str | Absent:
    """The C library's version, e.g. "2.36"."""
    try:
        told = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (AttributeError, ValueError, OSError):  # no such question to musl, or to another system
        told = ""
    name, _, version = told.partition(" ")
    if name != "glibc" or not version:
        return Absent("the C library is not glibc")
    return version
