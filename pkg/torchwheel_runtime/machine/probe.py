"""Reads facts from programs, files and the platform. A failure is an Absent, not an error."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from torchwheel_runtime.machine.facts import Absent, Unanswered


def program_output(command: Sequence[str], seconds: float = 20) -> str | Absent:
    """Both output streams of a program; if it fails, the last line of its output.

    Unanswered if it did not end in time.
    """
    from torchwheel_runtime import process  # noqa: PLC0415 - a first call starts no program

    name = Path(command[0]).name
    try:
        done = process.run(command, merge=True, timeout=seconds)
    except process.TimedOutError as error:
        return Unanswered(f"{name} {error.reason}")
    except process.NotRunError as error:
        return Absent(f"{name} {error.reason}")
    if done.status < 0:
        return Absent(f"{name} was ended by signal {-done.status}")
    if done.status:
        return Absent(done.reason(otherwise=f"{name} failed with status {done.status}"))
    return done.output


def is_file(path: Path) -> bool:
    """Whether the file exists and is accessible."""
    try:
        return path.is_file()
    except OSError:
        return False


def file_text(path: Path) -> str | Absent:
    """The text of a file."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        return Absent(f"{path}: {error.strerror}")


def real_path(path: Path) -> Path:
    """The path with links resolved, as far as they can be."""
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
        library = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (AttributeError, ValueError, OSError):  # musl, or another system
        library = ""
    name, _, version = library.partition(" ")
    if name != "glibc" or not version:
        return Absent("the C library is not glibc")
    return version
