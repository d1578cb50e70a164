"""Errors that reach a user as one clear line, and the exit status each one means."""


class TorchwheelError(Exception):
    """Something failed: exit status 1. The text says what, where and what to do."""

    status = 1


class UsageError(TorchwheelError):
    """The call or the matrix is wrong: exit status 2. Nothing was built."""

    status = 2
