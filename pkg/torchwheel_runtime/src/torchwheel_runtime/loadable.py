"""Library files that are open, so that the file that was verified is the one that is loaded.

A path may lead to another file a moment after a check. So a library is opened once. The open file
is verified, and the loader is led to it through /proc, wherever the library's own path leads.

Standard library only: a first call on a GPU needs it.
"""

import contextlib
import ctypes
import functools
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import IO, TypeVar

from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.files import private_folder
from torchwheel_runtime.ownership import (
    UntrustedError,
    open_regular,
    trusted_path,
    untrusted_because,
)

_Loaded = TypeVar("_Loaded")
_LOADED: list["LoadableFile"] = []
"""The libraries that were loaded. They stay open, because the loader knows them by open files."""


class LoadableFile:
    """An open library whose bytes no other user can change.

    Attributes:
        path: the file's own path, which messages and reports name.
    """

    def __init__(self, path: Path, handle: int) -> None:
        """Take the open file `handle`. It is closed with this object; a loaded library keeps it."""
        self.path = path
        self._handle = handle
        weakref.finalize(self, os.close, handle).atexit = False

    def open(self) -> IO[bytes]:
        """The file, to read it from its beginning."""
        file = os.fdopen(self._handle, "rb", closefd=False)
        file.seek(0)
        return file

    def read(self) -> bytes:
        """All bytes of the file."""
        with self.open() as file:
            return file.read()

    def load(self) -> ctypes.CDLL:
        """Load it; raises as `load_by` does."""
        return self.load_by(ctypes.CDLL)

    def load_by(self, loader: Callable[[str], _Loaded]) -> _Loaded:
        """Have `loader` load it, which gets a path that leads to the open file.

        Raises:
            OSError, ImportError: the loader refuses it; the error names the library's own path.
            TorchwheelError: it needs libraries beside it, which others can replace.
        """
        path = self.prepare()
        try:
            return loader(path)
        except (OSError, ImportError) as error:
            if beside := self._path_beside_others():
                return loader(beside)
            text = str(error).replace(path, str(self.path))
            raise type(error)(text) from (error if text == str(error) else None)

    def prepare(self) -> str:
        """Make the path for the loader. A later load then takes less time."""
        return self._path_for_loader

    @functools.cached_property
    def _path_for_loader(self) -> str:
        _LOADED.append(self)
        try:
            # Not "self": the path stays right for a debugger, and for a child that forks.
            file = f"/proc/{Path('/proc/self').readlink()}/fd/{self._handle}"
        except OSError:
            file = None
        try:
            return str(self._named(file))
        except (OSError, UntrustedError):
            if file is None:
                raise
            return file

    def _path_beside_others(self) -> str | None:
        """Its own path, if it loads others that lie relative to that; None if it loads none."""
        if b"$ORIGIN" not in self.read():
            return None
        try:
            return str(trusted_path(self.path))
        except UntrustedError as error:
            raise TorchwheelError(
                f"{self.path}: others can replace the libraries beside it, which it loads: {error}"
            ) from error

    def _named(self, file: str | None) -> Path:
        """A path of this process that has the library's name, which C++ stack traces show.

        It is a link to the open file, or a copy of it where there is no /proc.
        """
        folder = tempfile.mkdtemp(dir=trusted_path(private_folder()))
        named = Path(folder, self.path.name)
        if file:
            named.symlink_to(file)
        else:
            named.write_bytes(self.read())
        return named


def open_loadable(path: Path) -> LoadableFile:
    """Open a library. If others could change the file itself, a copy in memory takes its place.

    Raises:
        OSError: it cannot be opened, or is no file.
    """
    handle = open_regular(path)
    if untrusted_because(handle):
        with os.fdopen(handle, "rb") as file:
            handle = _empty_file(path.name)
            with os.fdopen(handle, "wb", closefd=False) as copy:
                shutil.copyfileobj(file, copy, 1 << 20)
    return LoadableFile(path, handle)


def _empty_file(name: str) -> int:
    """A new file that has no path."""
    with contextlib.suppress(OSError):  # some kernels have none, or forbid it
        return os.memfd_create(name)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
