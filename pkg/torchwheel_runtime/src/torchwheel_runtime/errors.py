"""Errors that reach a user as one clear line, and the exit status each one means."""

import errno
import os

NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


class TorchwheelError(Exception):
    """Something failed: exit status 1. The text says what, where and what to do.

    Each argument is a line of it, so that no name in one can make up another.
    """

    status = 1

    def __str__(self) -> str:
        return "\n".join(map(str, self.args))


class UsageError(TorchwheelError):
    """The call or the matrix is wrong: exit status 2. Nothing was built."""

    status = 2


class InterruptedRunError(KeyboardInterrupt):
    """A signal ends a command. Its arguments are lines that say what was stopped.

    Attributes:
        status: the exit status of a program that the signal ends, as a shell gives it.
    """

    def __init__(self, number: int) -> None:
        super().__init__()
        self.status = 128 + number


class DiskFullError(TorchwheelError):
    """A disk is full, or the user's quota of it is used up."""


class PlacedError(TorchwheelError):
    """An error in its parts: PLACE: REASON; FIX.

    Attributes:
        place: the file, folder or program.
        reason: what is wrong with it, e.g. `size: expected a whole number, found "8"`.
        fix: what to do; empty if that is not known.
    """

    def __init__(self, place: str | os.PathLike[str], reason: str, fix: str = "") -> None:
        super().__init__(f"{os.fspath(place)}: {reason}" + (f"; {fix}" if fix else ""))
        self.place = place
        self.reason = reason
        self.fix = fix


class MalformedError(PlacedError):
    """A file does not have the form that it must have."""


class MissingModuleError(TorchwheelError):
    """A Python program imports a module that is not installed."""


def program_error(reason: str) -> TorchwheelError:
    """The error of a program that failed.

    A program says by its output alone that a disk is full or that a module is missing. So its
    output is read here, where the program is run; all other code goes by the type.

    Args:
        reason: one line, mostly out of the program's output.
    """
    if any(os.strerror(number) in reason for number in NO_SPACE):
        return DiskFullError(reason)
    missing = reason.startswith("ModuleNotFoundError")
    return MissingModuleError(reason) if missing else TorchwheelError(reason)
