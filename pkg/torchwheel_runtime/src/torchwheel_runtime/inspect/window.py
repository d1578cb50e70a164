"""Reads files of anybody: regular ones alone, parts of them, and in a bounded time."""

import contextlib
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from torchwheel_runtime import ownership
from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.inspect import budgets
from torchwheel_runtime.text import shorten_line

_BLOCK = 1 << 20


class WheelError(TorchwheelError):
    """A wheel is malformed; the text names the file and the fault.

    A member's name may have thousands of characters, so a long text is cut in its middle.
    """

    def __init__(self, text: str) -> None:
        super().__init__(shorten_line(text))


@contextlib.contextmanager
def open_regular(path: Path) -> Iterator[IO[bytes]]:
    """Open a regular file for reading; neither a pipe nor a device is waited for."""
    try:
        with os.fdopen(ownership.open_regular(path), "rb") as file:
            yield file
    except ownership.NotRegularError as error:
        raise WheelError(f"{path.name}: is no regular file") from error
    except FileNotFoundError as error:
        raise WheelError(f"{path.name}: no such file in {path.parent}") from error
    except OSError as error:
        raise WheelError(f"{path.name}: cannot be read: {error.strerror or error}") from error


class CpuTime:
    """Processor time that is left to read the libraries of a wheel, or of a package.

    That of the programs that are run for it counts too.
    """

    def __init__(self, seconds: float = budgets.LIBRARY_SECONDS) -> None:
        self._seconds = seconds
        self._end = _cpu_time() + seconds

    def left(self) -> bool:
        """Whether it is not used up."""
        return _cpu_time() <= self._end

    def check(self) -> None:
        """Raise a WheelError if it is used up."""
        if not self.left():
            raise WheelError(f"the libraries take more than {self._seconds:g} s to read")


def _cpu_time() -> float:
    return sum(os.times()[:4])


class Window:
    """A part of an open file: a section, or bytes in memory."""

    def __init__(self, file: IO[bytes], offset: int, size: int) -> None:
        self._file, self._offset = file, offset
        self.size = size

    @classmethod
    def of_bytes(cls, data: bytes) -> "Window":
        """A window on all of `data`."""
        return cls(io.BytesIO(data), 0, len(data))

    def read(self, at: int, size: int) -> bytes:
        """The bytes of a part of it; a WheelError if it does not have them all."""
        if at + size <= self.size:
            self._file.seek(self._offset + at)
            if len(data := self._file.read(size)) == size:
                return data
        raise WheelError(f"cut short: {size} bytes expected at byte {at}, it has {self.size}")

    def part(self, at: int) -> "Window":
        """What follows a byte of it."""
        return Window(self._file, self._offset + at, self.size - at)

    def skip_zeros(self, at: int) -> int:
        """The place of the first byte that is not zero, from `at` on; else its size."""
        while at < self.size:
            block = self.read(at, min(_BLOCK, self.size - at))
            if rest := block.lstrip(b"\0"):
                return at + len(block) - len(rest)
            at += len(block)
        return self.size
