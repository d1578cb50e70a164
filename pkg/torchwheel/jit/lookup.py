"""Looks up a library in the cache and verifies it. A corrupt library counts as absent."""

import contextlib
import dataclasses
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from torchwheel.errors import TorchwheelError
from torchwheel.files import discard, sha256_of
from torchwheel.jit import entry as entries
from torchwheel.jit.entry import CacheEntry
from torchwheel.jit.folder import OTHERS_WRITE, lock_of, secure_folder
from torchwheel.jit.key import CacheKey
from torchwheel.lock import LockBusyError, fail_if_busy, hold_lock

_MAX_ENTRY_BYTES = 1 << 16
_OPEN_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# Other errors of open() do not show that a file is corrupt.
_CORRUPT_REASONS = {
    errno.ELOOP: "a link, not a file",
    errno.ENOTDIR: "a link or a file, not a folder",
    errno.ENXIO: "not a file",
    errno.EACCES: "cannot be read",
}


class CorruptError(Exception):
    """The file or folder `path` of the cache is not as it was written."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path = path
        self.why = why


def open_verified(folder: Path, key: CacheKey) -> tuple[Path, CacheEntry]:
    """Verify a library and its entry; returns the library's folder and the entry.

    Raises:
        FileNotFoundError: it is not in the cache, or was removed meanwhile.
        CorruptError: it is in the cache and must not be loaded.
    """
    path = folder / key.target / key.content
    with (
        _open_folder(folder, None) as top,
        _open_folder(path.parent, top) as target,
        _open_folder(path, target) as inside,
    ):
        try:
            return path, _check_entry(path, inside, key)
        except (CorruptError, FileNotFoundError) as error:
            # A folder that is being removed is renamed first, and is then not corrupt.
            if not _is_still_at(path, inside):
                raise FileNotFoundError(path) from error
            if isinstance(error, CorruptError):
                raise
            raise CorruptError(path, f"no file {error.filename}") from error


def _check_entry(path: Path, inside: int, key: CacheKey) -> CacheEntry:
    with _open_file(path / entries.ENTRY_FILE, inside) as file:
        try:
            entry = entries.load_entry(file.read(_MAX_ENTRY_BYTES))
        except ValueError as error:
            raise CorruptError(path / entries.ENTRY_FILE, str(error)) from error
    if entry.content != key.content:
        raise CorruptError(path / entries.ENTRY_FILE, "is of another library")
    with _open_file(path / entry.file, inside) as file:
        size = os.fstat(file.fileno()).st_size
        if size != entry.size:
            raise CorruptError(path / entry.file, f"{size} bytes, {entry.size} expected")
        if sha256_of(file) != entry.sha256:
            raise CorruptError(path / entry.file, "its SHA-256 is not what was written")
    return entry


@contextlib.contextmanager
def _open_folder(path: Path, inside: int | None) -> Iterator[int]:
    handle = _open_owned(path, inside, os.O_DIRECTORY)
    try:
        yield handle
    finally:
        os.close(handle)


def _open_file(path: Path, inside: int) -> IO[bytes]:
    return os.fdopen(_open_owned(path, inside, 0), "rb")


def _open_owned(path: Path, inside: int | None, flags: int) -> int:
    """Open a folder, or a file in the folder `inside`, and check that only this user can write."""
    try:
        handle = os.open(path if inside is None else path.name, _OPEN_FLAGS | flags, dir_fd=inside)
    except OSError as error:
        if error.errno in _CORRUPT_REASONS:
            raise CorruptError(path, _CORRUPT_REASONS[error.errno]) from error
        raise
    found, why = os.fstat(handle), None
    if not flags and not stat.S_ISREG(found.st_mode):
        why = "not a file"
    elif found.st_uid != os.geteuid():
        why = f"belongs to user {found.st_uid}, you are {os.geteuid()}"
    elif found.st_mode & OTHERS_WRITE:
        why = "others may write to it"
    if why:
        os.close(handle)
        raise CorruptError(path, why)
    return handle


def _is_still_at(path: Path, handle: int) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(handle))
    except OSError:
        return False


@dataclasses.dataclass(frozen=True)
class CachedLibrary:
    """The result of a lookup.

    Attributes:
        library: the verified library; None if there is none.
        problem: one line if the cache has it and it cannot be used.
    """

    library: Path | None = None
    problem: str | None = None


def find_library(folder: Path, key: CacheKey) -> CachedLibrary:
    """Look up the library of `key` in the cache `folder`. A corrupt library is removed."""
    try:
        secure_folder(folder)
        path, entry = open_verified(folder, key)
    except FileNotFoundError:
        return CachedLibrary()
    except TorchwheelError as error:
        return CachedLibrary(problem=str(error))
    except OSError as error:
        return CachedLibrary(problem=f"{folder}: {error.strerror}")
    except CorruptError as error:
        gone = "removed" if _remove_corrupt(folder, key) else "it could not be removed"
        return CachedLibrary(problem=f"{error}; {gone}")
    with contextlib.suppress(OSError):
        os.utime(path)  # its last use
    return CachedLibrary(path / entry.file)


def check_or_discard(folder: Path, key: CacheKey) -> Path | None:
    """The verified library of `key`; a corrupt one is removed. Hold the target's lock."""
    try:
        path, entry = open_verified(folder, key)
    except FileNotFoundError:
        return None
    except CorruptError as error:
        # The library's folder, or its target's if that is the corrupt one.
        parts = error.path.relative_to(folder).parts[:2]
        if parts:
            discard(folder.joinpath(*parts))
        return None
    return path / entry.file


def _remove_corrupt(folder: Path, key: CacheKey) -> bool:
    """Remove a corrupt library, unless another process has the lock and will replace it."""
    try:
        with hold_lock(lock_of(folder, key.target), fail_if_busy):
            check_or_discard(folder, key)
    except (OSError, LockBusyError):
        return False
    return True
