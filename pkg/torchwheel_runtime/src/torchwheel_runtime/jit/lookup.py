"""Looks up a library in the cache and verifies it. A corrupt library counts as absent."""

import contextlib
import dataclasses
import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from torchwheel_runtime.errors import MalformedError, TorchwheelError
from torchwheel_runtime.files import discard, sha256_of
from torchwheel_runtime.jit.key import CacheKey
from torchwheel_runtime.json_files import FileName, parse_json
from torchwheel_runtime.loadable import LoadableFile
from torchwheel_runtime.lock import LockBusyError, fail_if_busy, hold_lock
from torchwheel_runtime.ownership import is_open_at, trusted_path, untrusted_because
from torchwheel_runtime.toolkit.cache import cache_path

LOCK_SUFFIX = ".lock"


def jit_folder() -> Path:
    """The folder of libraries that are built just in time. It is not created here."""
    return cache_path() / "jit"


def lock_of(folder: Path, target: str) -> Path:
    """The lock file of `target`: of its libraries and its work folders."""
    return folder / f"{target}{LOCK_SUFFIX}"


ENTRY_FILE = "entry.json"


@dataclasses.dataclass(frozen=True)
class CacheEntry:
    """A library of the cache.

    Attributes:
        content: the content part of its key, which is also the folder's name.
        name: the operator's name, e.g. "fusedops.bias_act".
        archs: the arch list that it was built for.
        toolkit: the toolkit and host compiler that built it.
        torch: the torch that it is for.
        file: the library's file name.
        size: the library's size in bytes.
        sha256: the hash of its bytes.
    """

    content: str
    name: str
    archs: tuple[str, ...]
    toolkit: str
    torch: str
    file: FileName
    size: int
    sha256: str


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


def open_verified(folder: Path, key: CacheKey) -> tuple[LoadableFile, CacheEntry]:
    """Verify a library and its entry; returns both. Load the open library, not its path.

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
            return _check_entry(path, inside, key)
        except (CorruptError, FileNotFoundError) as error:
            # A folder that is being removed is renamed first, and is then not corrupt.
            if not is_open_at(path, inside):
                raise FileNotFoundError(path) from error
            if isinstance(error, CorruptError):
                raise
            raise CorruptError(path, f"no file {error.filename}") from error


def _check_entry(path: Path, inside: int, key: CacheKey) -> tuple[LoadableFile, CacheEntry]:
    with os.fdopen(_open_owned(path / ENTRY_FILE, inside, 0), "rb") as file:
        try:
            entry = parse_json(file.read(_MAX_ENTRY_BYTES), CacheEntry, ENTRY_FILE)
        except MalformedError as error:
            raise CorruptError(path / ENTRY_FILE, error.reason) from error
    if entry.content != key.content:
        raise CorruptError(path / ENTRY_FILE, "is of another library")
    library = LoadableFile(path / entry.file, _open_owned(path / entry.file, inside, 0))
    with library.open() as file:
        size = os.fstat(file.fileno()).st_size
        if size != entry.size:
            raise CorruptError(path / entry.file, f"{size} bytes, {entry.size} expected")
        if sha256_of(file) != entry.sha256:
            raise CorruptError(path / entry.file, "its SHA-256 is not what was written")
    return library, entry


@contextlib.contextmanager
def _open_folder(path: Path, inside: int | None) -> Iterator[int]:
    handle = _open_owned(path, inside, os.O_DIRECTORY)
    try:
        yield handle
    finally:
        os.close(handle)


def _open_owned(path: Path, inside: int | None, flags: int) -> int:
    """Open a folder, or a file in the folder `inside`, that only this user and root can change."""
    try:
        handle = os.open(path if inside is None else path.name, _OPEN_FLAGS | flags, dir_fd=inside)
    except OSError as error:
        if error.errno in _CORRUPT_REASONS:
            raise CorruptError(path, _CORRUPT_REASONS[error.errno]) from error
        raise
    is_file = stat.S_ISREG(os.fstat(handle).st_mode)
    if why := untrusted_because(handle) if flags or is_file else "not a file":
        os.close(handle)
        raise CorruptError(path, why)
    return handle


def find_library(folder: Path, key: CacheKey, say: Callable[[str], None]) -> LoadableFile | None:
    """The verified library of `key` in the cache `folder`; None if there is none.

    A corrupt library is removed. `say` hears why a library that is there cannot be used.
    """
    try:
        library, _ = open_verified(trusted_path(folder), key)
    except FileNotFoundError:
        return None
    except TorchwheelError as error:
        say(str(error))
    except OSError as error:
        say(f"{folder}: {error.strerror}")
    except CorruptError as error:
        gone = "removed" if _remove_corrupt(folder, key) else "it could not be removed"
        say(f"{error}; {gone}")
    else:
        with contextlib.suppress(OSError):
            os.utime(library.path.parent)  # its last use
        return library
    return None


def check_or_discard(folder: Path, key: CacheKey) -> LoadableFile | None:
    """The verified library of `key`; a corrupt one is removed. Hold the target's lock."""
    try:
        library, _ = open_verified(folder, key)
    except FileNotFoundError:
        return None
    except CorruptError as error:
        # The library's folder, or its target's if that is the corrupt one.
        parts = error.path.relative_to(folder).parts[:2]
        if parts:
            discard(folder.joinpath(*parts))
        return None
    return library


def _remove_corrupt(folder: Path, key: CacheKey) -> bool:
    """Remove a corrupt library, unless another process has the lock and will replace it."""
    try:
        with hold_lock(lock_of(folder, key.target), fail_if_busy):
            check_or_discard(folder, key)
    except (OSError, LockBusyError):
        return False
    return True
