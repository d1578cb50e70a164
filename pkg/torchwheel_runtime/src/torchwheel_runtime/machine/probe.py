"""Reads facts from programs, files, the platform and drivers. A failure is an Absent."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from torchwheel_runtime.arch.devices import Driver, DriverError, amd_driver, nvidia_driver
from torchwheel_runtime.arch.model import Backend
from torchwheel_runtime.machine.facts import Absent, Torch


def program_output(command: Sequence[str], seconds: float = 20) -> str | Absent:
    """Both output streams of a program; if it fails, the last line of its output.

    The result has a `problem` if it did not end in time.
    """
    from torchwheel_runtime import process  # noqa: PLC0415 - a first call starts no program

    name = Path(command[0]).name
    try:
        done = process.run(command, merge=True, timeout=seconds)
    except process.TimedOutError as error:
        reason = f"{name} {error.reason}"
        return Absent(reason, problem=reason)
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


def glibc_version() -> str | None:
    """The C library's version, e.g. "2.36"; None for musl, or on another system."""
    try:
        library = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (AttributeError, ValueError, OSError):
        return None
    name, _, version = library.partition(" ")
    return version or None if name == "glibc" else None


def find_driver(backend: Backend) -> Driver | Absent:
    """The driver of a backend's GPUs. NVIDIA's takes some ten milliseconds to answer."""
    try:
        return amd_driver() if backend == "rocm" else nvidia_driver()
    except DriverError as error:
        return Absent(str(error), error.fix, error.problem if error.installed else None)


def driver_for_torch(torch: Torch | None) -> tuple[Backend, Driver | Absent]:
    """The driver for torch's backend; for a torch without one, the driver of any GPU."""
    if torch and torch.backend:
        return torch.backend, find_driver(torch.backend)
    nvidia, amd = find_driver("cuda"), find_driver("rocm")
    if isinstance(nvidia, Driver):
        return "cuda", nvidia
    if isinstance(amd, Driver):
        return "rocm", amd
    return "cuda", Absent(f"{nvidia.reason}; {amd.reason}")
