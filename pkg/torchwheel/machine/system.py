"""Python, the platform and the C library. Cheap: nothing is started or read."""

import os
import sys

from torchwheel.machine.torch_model import Absent


def python() -> str:
    """The running Python, e.g. "3.12.3"."""
    return ".".join(map(str, sys.version_info[:3]))


def platform_tag() -> str:
    """The platform as wheels name it, e.g. "linux_x86_64"."""
    import sysconfig  # noqa: PLC0415 - an import asks for the C library alone

    return sysconfig.get_platform().replace("-", "_").replace(".", "_")


def glibc() -> str | Absent:
    """The C library's version, e.g. "2.36"."""
    try:
        told = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (AttributeError, ValueError, OSError):  # no such question to musl, or to another system
        told = ""
    name, _, version = told.partition(" ")
    if name != "glibc" or not version:
        return Absent("the C library is not glibc")
    return version
