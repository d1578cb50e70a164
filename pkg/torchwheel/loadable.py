"""Library files that are open, so that the file that was verified is the one that is loaded.

A path may lead to another file a moment after a check. So a library is opened once. The open file
is verified, and the loader is led to it through /proc, wherever the library's own path leads.

Standard library only: a first call on a GPU needs it.
"""

import contextlib
import ctypes
import errno
import functools
import os
import shutil
import stat
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from torchwheel.errors import TorchwheelError
from torchwheel.ownership import (
    UntrustedError,
    temporary_folder,
    trusted_path,
    untrusted_because,
)

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
        """Load it.

        Raises:
            OSError: the loader refuses it.
            TorchwheelError: others can replace a library that it loads.
        """
        with self.path_for_loader() as path:
            return ctypes.CDLL(path)

    @contextlib.contextmanager
    def path_for_loader(self) -> Iterator[str]:
        """Yield the path to load it by. An error of the loader names the file's own path instead.

        Raises:
            TorchwheelError: others can replace a library that it loads.
        """
        path = self.prepare()
        try:
            yield path
        except (OSError, ImportError) as error:
            text = str(error).replace(path, str(self.path))
            raise type(error)(text) from (error if text == str(error) else None)

    def prepare(self) -> str:
        """Find the path to load it by. This takes time, which a later load then does not take.

        Raises:
            TorchwheelError: others can replace a library that it loads.
        """
        return self._path_for_loader

    @functools.cached_property
    def _path_for_loader(self) -> str:
        _LOADED.append(self)
        if b"$ORIGIN" in self.read():
            # The loader looks for them relative to the path that it is given.
            try:
                return str(trusted_path(self.path))
            except UntrustedError as error:
                raise TorchwheelError(
                    f"{self.path}: others can replace the libraries beside it, which it loads: "
                    f"{error}"
                ) from error
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

    def _named(self, file: str | None) -> Path:
        """A path of this process that has the library's name, which C++ stack traces show.

        It is a link to the open file, or a copy of it where there is no /proc.
        """
        folder = tempfile.mkdtemp(dir=trusted_path(temporary_folder()))
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
    # A pipe would be waited for.
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    found = os.fstat(handle)
    if not stat.S_ISREG(found.st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "not a file", str(path))
    if untrusted_because(found):
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
