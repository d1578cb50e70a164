"""Files that are complete or absent: written under a temporary name, synced, then renamed.

A writer holds a lock on its temporary name as long as it lives. So the next writer knows what a
killed one left, and removes it. Folders are exchanged in one step where the system can do that.
"""

import atexit
import base64
import contextlib
import errno
import fcntl
import functools
import hashlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO

from torchwheel_runtime.errors import NO_SPACE, DiskFullError, TorchwheelError
from torchwheel_runtime.ownership import is_open_at

_TEMPORARY = ".temporary"
_PREVIOUS = ".previous"
"""Suffix of a folder that is being replaced where two names cannot be exchanged."""
_SCRATCH = "torchwheel-"
_DAY = 86400
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
_TRIES = 100
"""Names that a writer tries; each fails only if it is taken, or swept in the moment it is made."""
_MANY = 256
"""Files of a folder above which its disk is synced: one by one, each takes milliseconds."""


def sha256(path: Path) -> str:
    """Hex SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return sha256_of(file)


def sha256_of(file: IO[bytes]) -> str:
    """Hex SHA-256 of an open file, from its position on."""
    digest = hashlib.sha256()
    while block := file.read(1 << 16):  # a larger one is not in the processor's cache any more
        digest.update(block)
    return digest.hexdigest()


def sha256_by_name(paths: Iterable[Path]) -> dict[str, str]:
    """Hex SHA-256 of files, by file name."""
    return {path.name: sha256(path) for path in sorted(paths)}


def record_hash(digest: bytes) -> str:
    """A raw SHA-256 as a wheel's RECORD writes it: `sha256=`, URL-safe base64, no padding."""
    return "sha256=" + base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def path_inside(folder: Path, member: str, archive: str) -> Path:
    """The path of `member` of `archive` below `folder`; a name that leads out is refused."""
    path = folder / member
    if not leads_inside(folder, path):
        raise TorchwheelError(f"{archive}: member {member!r} leaves its folder")
    return path


def leads_inside(folder: Path, path: Path) -> bool:
    """Whether a path is below `folder`, wherever links lead."""
    # Path.resolve raises a RuntimeError for a ring of links.
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


@contextlib.contextmanager
def explain_full_disk(where: Path) -> Iterator[None]:
    """Turn an error about a full disk, here or in a program that was run, into one line.

    One about the limit on a file's size, which Python raises without a path, gets the path `where`.
    """
    full = f"no space left on the disk of {where} or the temporary folder: free some and run again"
    try:
        yield
    except (OSError, TorchwheelError) as error:
        if _is_full_disk(error):
            raise DiskFullError(full) from error
        if isinstance(error, OSError) and error.errno == errno.EFBIG and error.filename is None:
            error.filename = str(where)
        raise


def _is_full_disk(error: BaseException | None) -> bool:
    """Whether the error, or one that it was raised from, is about a full disk."""
    while error is not None:
        full = isinstance(error, OSError) and error.errno in NO_SPACE
        if full or isinstance(error, DiskFullError):
            return True
        error = error.__cause__
    return False


def discard(path: Path) -> None:
    """Remove a file or folder: its name disappears at once. It may be missing."""
    temporary = _hidden_name(path, _TEMPORARY)
    with contextlib.suppress(FileNotFoundError):
        path.rename(temporary)  # this needs no room on the disk
        # Else a power cut could keep the name and lose a part of the content.
        _sync(path.parent)
        _remove(temporary)


def _hidden_name(path: Path, suffix: str) -> Path:
    """A new name beside `path` that `remove_leftovers` knows."""
    return path.with_name(f".{path.name}.{os.urandom(4).hex()}{suffix}")


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def remove_leftovers(folder: Path, name: str | None = None) -> None:
    """Remove what killed writers of `name`, or of any name, left in `folder`.

    A folder whose replacement was cut short gets its name back. What a living writer holds stays.
    """
    _sweep(folder, "." if name is None else f".{name}.")


def _sweep(folder: Path, prefix: str) -> None:
    try:
        names = sorted(os.listdir(folder))  # noqa: PTH208 - names alone
    except OSError:
        return
    for name in names:
        if name.startswith(prefix) and name.endswith((_TEMPORARY, _PREVIOUS)):
            path = folder / name
            with contextlib.suppress(OSError), _hold_if_abandoned(path) as abandoned:
                # The killed writer may have exchanged names that the disk does not have yet.
                _sync(folder)
                if abandoned and name.endswith(_PREVIOUS):
                    _restore(path)
                elif abandoned:
                    _remove(path)


def _restore(previous: Path) -> None:
    """Give a replaced folder its name back, unless its replacement is there."""
    target = previous.with_name(previous.name[1:].removesuffix(_PREVIOUS).rpartition(".")[0])
    if os.path.lexists(target):
        _remove(previous)
    else:
        previous.rename(target)


@contextlib.contextmanager
def _hold_if_abandoned(path: Path) -> Iterator[bool]:
    """Whether no living writer holds the temporary `path`; nobody can take it during the block."""
    found = path.lstat()
    if found.st_uid != os.geteuid():
        yield False
        return
    if not stat.S_ISDIR(found.st_mode) and not stat.S_ISREG(found.st_mode):
        yield True  # a replaced link
        return
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        except OSError:
            # NFS locks no folder. No writer takes a day.
            yield time.time() - found.st_ctime > _DAY
        else:
            yield True
    finally:
        os.close(handle)


@contextlib.contextmanager
def _hold_temporary(new_name: Callable[[], Path], make: Callable[[Path], int]) -> Iterator[Path]:
    """Make a temporary file or folder and hold its lock for the block."""
    for _ in range(_TRIES):
        path = new_name()
        try:
            handle = make(path)
        except (FileExistsError, FileNotFoundError):
            if not path.parent.is_dir():
                raise
            continue  # the name is taken, or was swept before it was locked
        try:
            with contextlib.suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_EX)
            if is_open_at(path, handle):
                yield path
                return
        finally:
            with contextlib.suppress(OSError):  # a daemon closes files that it does not know
                os.close(handle)
    # In a folder such as /proc nothing can be made, whatever its mode says, and no name is there.
    raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path.parent))


def _make_file(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)


def _make_folder(path: Path, mode: int = 0o755) -> int:
    path.mkdir(mode)
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _make_private_folder(path: Path) -> int:
    return _make_folder(path, 0o700)


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield a private folder for temporary files, and remove it and those of killed processes."""
    parent = _temporary_root()
    _sweep(parent, _SCRATCH)

    def new_name() -> Path:
        return parent / f"{_SCRATCH}{os.urandom(4).hex()}{_TEMPORARY}"

    process = os.getpid()
    with _hold_temporary(new_name, _make_private_folder) as folder:
        try:
            yield folder
        finally:
            if os.getpid() == process:  # a forked child comes here too
                _remove(folder)


def private_folder() -> Path:
    """The scratch folder of this process, removed at its end."""
    folder = _private_folder(os.getpid())
    if not folder.is_dir():  # swept, as this process has lost its lock
        _private_folder.cache_clear()
        folder = _private_folder(os.getpid())
    return folder


@functools.cache
def _private_folder(process: int) -> Path:
    del process  # a forked child has a folder of its own
    stack = contextlib.ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(scratch_folder())


def _temporary_root() -> Path:
    """The choice of `gettempdir`, without the file that it writes as a trial: a kill leaves it."""
    variables = (os.environ.get(name) for name in ("TMPDIR", "TEMP", "TMP"))
    for name in () if tempfile.tempdir else (*variables, "/tmp"):  # noqa: S108 - as it does
        if name and os.access(f"{name}/.", os.W_OK | os.X_OK):
            return Path(name).absolute()
    return Path(tempfile.gettempdir())


@contextlib.contextmanager
def own_temporary_files() -> Iterator[None]:
    """Keep the temporary files of this process in one folder, which the next one can sweep.

    Without a folder for temporary files, nothing changes: not every command needs one.
    """
    before = tempfile.tempdir
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            tempfile.tempdir = str(stack.enter_context(scratch_folder()))
        try:
            yield
        finally:
            tempfile.tempdir = before


def temporary_variables() -> dict[str, str]:
    """The variable that makes a program keep its temporary files in that folder too."""
    return {"TMPDIR": tempfile.tempdir} if tempfile.tempdir else {}


def make_executable(path: Path) -> None:
    """Let those execute a file who may read it."""
    mode = path.stat().st_mode
    path.chmod(mode | (mode & 0o444) >> 2)


def sync_tree(path: Path) -> None:
    """Write a file, or a folder with all that is in it, to the disk: a power cut keeps it."""
    inside = list(_tree(path))
    if len(inside) > _MANY and _sync_disk(path):
        return
    for one in inside:
        _sync(one)


def _tree(path: Path) -> Iterator[Path]:
    """A file, or a folder after all that is in it."""
    if path.is_dir():
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False) or entry.is_file(follow_symlinks=False):
                    yield from _tree(Path(entry.path))
    yield path


def _sync_disk(path: Path) -> bool:
    """Write all that the disk of a folder still has to write; False if the system cannot."""
    syncfs = _of_libc("syncfs")
    if syncfs is None:
        return False
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return not syncfs(handle)
    finally:
        os.close(handle)


def _of_libc(name: str) -> Callable[..., int] | None:
    """A function of the C library that Python does not have; None if the system has none."""
    import ctypes  # noqa: PLC0415 - the import of an extension comes here too, and needs none

    try:
        function: Callable[..., int] = getattr(ctypes.CDLL(None, use_errno=True), name)
    except (AttributeError, OSError):  # macOS, musl, an old glibc
        return None
    return function


def _sync(path: Path) -> None:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except PermissionError:
        return  # it may be written but not read
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno in NO_SPACE or error.errno == errno.EIO:
            raise  # others: a file system that cannot sync a folder
    finally:
        os.close(handle)


def move_into_place(source: Path, target: Path) -> None:
    """Sync a finished file or folder and rename it to `target`, on the same disk.

    A power cut or a kill leaves the old `target` or the new one. Another folder that has the name
    is replaced and removed.
    """
    sync_tree(source)
    old = None
    try:
        source.replace(target)
    except OSError:
        # A folder cannot be renamed over another one that has something in it, or over a file.
        if not source.is_dir() or not os.path.lexists(target):
            raise
        old = source if _exchange(source, target) else _replace_in_two_steps(source, target)
    # The old content may go only when the disk has the new name.
    _sync(target.parent)
    if old:
        _remove(old)


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two names in one step; False if the system or this disk cannot."""
    renameat2 = _of_libc("renameat2")
    if renameat2 is None:
        return False
    names = os.fsencode(one), os.fsencode(other)
    return not renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE)


def _replace_in_two_steps(source: Path, target: Path) -> Path:
    """Rename `target` aside, then `source` to it; after a kill between them, a sweep undoes it."""
    previous = _hidden_name(target, _PREVIOUS)
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            # Its lock tells a sweep that the second step is still to come.
            handle = os.open(target, os.O_RDONLY | os.O_CLOEXEC)
            stack.callback(os.close, handle)
            fcntl.flock(handle, fcntl.LOCK_EX)
        target.rename(previous)
        try:
            source.rename(target)
        except OSError:
            previous.rename(target)
            raise
    return previous


@contextlib.contextmanager
def write_atomically(target: Path) -> Iterator[Path]:
    """Yield a temporary path beside `target`; rename it to `target` after the block."""
    with _write_aside(target, _make_file) as temporary:
        yield temporary


def write_text(target: Path, text: str) -> None:
    """Replace the content of `target` with `text`, completely or not at all."""
    with write_atomically(target) as temporary:
        temporary.write_text(text, encoding="utf-8")


@contextlib.contextmanager
def make_folder_atomically(target: Path) -> Iterator[Path]:
    """Yield a temporary folder beside `target`; it replaces `target` after the block."""
    with _write_aside(target, _make_folder) as temporary:
        yield temporary


@contextlib.contextmanager
def _write_aside(target: Path, make: Callable[[Path], int]) -> Iterator[Path]:
    target.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(target.parent, target.name)
    with (
        explain_full_disk(target.parent),
        _hold_temporary(lambda: _hidden_name(target, _TEMPORARY), make) as temporary,
    ):
        try:
            yield temporary
            move_into_place(temporary, target)
        finally:
            _remove(temporary)
