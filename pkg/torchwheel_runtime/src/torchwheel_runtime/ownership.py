"""Which files are used: regular ones, and those that only this user and root can change.

Programs and libraries of the cache run with this user's rights. So a folder of the cache is used
only if it and every folder that leads to it belong to this user or root, and nobody else may write
to them. The check goes from the root folder down. So others cannot replace what has passed, and it
may be used by its path.

`find_program` holds programs on the PATH to nearly the same.

Standard library only: a first call on a GPU needs it.
"""

import contextlib
import errno
import functools
import os
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from torchwheel_runtime.errors import PlacedError, TorchwheelError

_ELSEWHERE = "set TORCHWHEEL_CACHE to a folder of your own"
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_OTHERS_ENTER = stat.S_IXGRP | stat.S_IXOTH
_MAX_LINKS = 40


class UntrustedError(PlacedError):
    """Another user could have written what is at `place`, so it is not used."""

    place: Path


class _Trust(NamedTuple):  # made in a first call on a GPU, as a dataclass in 0.4 ms
    """What may be used beside that of this user and root.

    Attributes:
        owners: users whose files and folders may be used.
        folders: folders that may lead to what is used, whoever can write to them.
        elsewhere: what to do, if another user could have written a file or folder.
    """

    owners: frozenset[int] = frozenset()
    folders: frozenset[Path] = frozenset()
    elsewhere: str = _ELSEWHERE


_NOBODY_ELSE = _Trust()


class NotRegularError(OSError):
    """There is a folder, a pipe or a device where a file is expected."""


def open_regular(path: Path) -> int:
    """Open a file for reading; returns its descriptor. A pipe is not waited for.

    Raises:
        NotRegularError: it is no regular file.
        OSError: it cannot be opened.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except ValueError:  # no file has such a name, e.g. one with a NUL
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path)) from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise NotRegularError(errno.EINVAL, "not a file", str(path))
    return handle


def is_open_at(path: Path, handle: int) -> bool:
    """Whether an open file or folder is the one that is at `path` now."""
    try:
        return os.path.samestat(path.lstat(), os.fstat(handle))
    except OSError:
        return False


def is_irregular(path: Path) -> bool:
    """Whether there is a pipe, a device or a socket, or a link to one: its reader may never end."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def untrusted_because(handle: int) -> str | None:
    """Why others can change an open file or folder; None if only this user and root can."""
    return _untrusted(handle, os.fstat(handle))


def _untrusted(where: Path | str | int, found: os.stat_result) -> str | None:
    loose = _others_may_write(where, found)
    return _foreign_owner(found) or (_loose_text(found) if loose else None)


def _foreign_owner(found: os.stat_result, trust: _Trust = _NOBODY_ELSE) -> str | None:
    if found.st_uid in (os.geteuid(), 0) or found.st_uid in trust.owners:
        return None
    return f"belongs to user {found.st_uid}, you are {os.geteuid()}"


def _others_may_write(where: Path | str | int, found: os.stat_result) -> bool:
    """Whether the mode lets others write; a link has no mode of its own."""
    if stat.S_ISLNK(found.st_mode):
        return False
    group = found.st_mode & stat.S_IWGRP
    if group and not _has_acl(where):
        group = not _is_private_group(found.st_gid)
    return bool(group or found.st_mode & stat.S_IWOTH)


def _has_acl(where: Path | str | int) -> bool:
    """Whether there is an access control list: the group's bits are its mask then.

    A folder may also have one for what is made in it.
    """
    if sys.platform != "linux":  # others have no getxattr
        return False
    for name in ("system.posix_acl_access", "system.posix_acl_default"):
        try:
            os.getxattr(where, name)
        except OSError as error:
            if error.errno in (errno.ENODATA, errno.ENOTSUP):
                continue  # it has none, or its file system knows none
        return True
    return False


def _is_private_group(gid: int) -> bool:
    """Whether a group has this user alone: many systems give each user a group."""
    import grp  # noqa: PLC0415 - seldom needed
    import pwd  # noqa: PLC0415

    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(gid)
    except KeyError:
        return False
    own = user.pw_uid != 0 and (user.pw_gid, user.pw_name) == (gid, group.gr_name)
    return own and set(group.gr_mem) <= {user.pw_name}


def trusted_path(path: Path, *, create: bool = False) -> Path:
    """The real path of a file or folder that only this user and root can change.

    Args:
        path: the file or folder.
        create: whether missing folders are created, private to this user; the path is a folder's.

    Raises:
        UntrustedError: others can change it, or what leads to it.
        OSError: it does not exist, or cannot be created.
    """
    return _walk(path, create=create)[0]


def find_program(name: str, path: str | None, skip: Callable[[UntrustedError], None]) -> str | None:
    """The first program of that name on the PATH that others cannot exchange, if there is one.

    Whoever can change Python, torchwheel or the system's shell could run code here without it. So
    their owners are believed, as of a tool cache of CI, and so are the folders that lead to them.

    Args:
        name: the program's name.
        path: folders as PATH has them; None for this process's PATH.
        skip: gets the reason for each program of that name that others can exchange.
    """
    owners, folders = _who_can_change_python()
    places = os.environ.get("PATH", os.defpath) if path is None else path
    for place in places.split(os.pathsep):
        if found := shutil.which(name, path=place or os.curdir):
            trust = _Trust(owners, folders, f"take {place or 'the current folder'} off the PATH")
            try:
                _walk(Path(found), trust=trust)
            except UntrustedError as error:
                reason = f"is not used: {error.place}: {error.reason}"
                skip(UntrustedError(Path(found), reason, error.fix))
            except OSError:
                continue
            else:
                return found
    return None


@functools.cache
def _who_can_change_python() -> tuple[frozenset[int], frozenset[Path]]:
    """Owners of Python, torchwheel and the system's shell, and the folders that lead to them."""
    owners: set[int] = set()
    folders: set[Path] = set()
    for name in (__file__, os.__file__, sys.executable, "/bin/sh"):
        with contextlib.suppress(OSError):
            file = Path(os.path.realpath(name))
            owners.add(file.stat().st_uid)
            folders.update(file.parents)
    return frozenset(owners), frozenset(folders)


def trusted_folder(folder: Path) -> Path:
    """Like `trusted_path`, with an error of torchwheel's own for a folder that cannot be created.

    Raises:
        UntrustedError: others can change it, or what leads to it.
        TorchwheelError: it cannot be created.
    """
    try:
        return trusted_path(folder, create=True)
    except OSError as error:
        raise no_folder(Path(error.filename or folder), error) from error


def closed_folder(folder: Path) -> Path:
    """A trusted folder that nobody else can enter, whatever the modes of the files in it.

    Raises:
        UntrustedError: others could enter it, and could have written some of what is in it.
        TorchwheelError: it cannot be created.
    """
    real = trusted_folder(folder)
    if not _walk(real)[1]:
        check_tree(real)
        real.chmod(0o700)
    return real


def no_folder(folder: Path, error: OSError) -> TorchwheelError:
    """The error of a folder that is missing or incomplete, where nothing can be written."""
    return TorchwheelError(
        f"{folder}: expected a folder that is complete or can be made, found: {error.strerror}; "
        f"{_ELSEWHERE}"
    )


def check_tree(folder: Path) -> None:
    """Check a trusted folder and all that is in it, which others may have put there earlier.

    Raises:
        UntrustedError: another user could have written some of it.
    """
    real, closed = _walk(folder)
    for path, found in _everything(real):
        if why := _foreign_owner(found) if closed else _untrusted(path, found):
            raise UntrustedError(Path(path), why, f"remove {real}, or {_ELSEWHERE}")


def let_others_read(folder: Path) -> None:
    """Let others read a folder and all that is in it, and not write there, whatever the umask.

    A cache may be root's, for all users, and root's builds run as another user.
    """
    for path, found in _everything(folder):
        mode = stat.S_IMODE(found.st_mode)
        owner = mode & (stat.S_IRUSR | stat.S_IXUSR)
        wanted = (mode & ~_OTHERS_WRITE) | owner >> 3 | owner >> 6
        if mode != wanted and not stat.S_ISLNK(found.st_mode):
            Path(path).chmod(wanted)


def _everything(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    """The paths of a folder and of all that is in it. Links are not followed."""
    folders = [str(folder)]
    yield folders[0], folder.lstat()
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                yield entry.path, entry.stat(follow_symlinks=False)
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)


def _loose_text(found: os.stat_result) -> str:
    return f"others may write to it (mode {stat.S_IMODE(found.st_mode):04o})"


def _walk(path: Path, *, create: bool = False, trust: _Trust = _NOBODY_ELSE) -> tuple[Path, bool]:
    """The real path, and whether nobody else can enter it or a folder that leads to it."""
    root = Path("/")
    steps = [(root, root.lstat())]
    _check_parent(*steps[-1], trust)
    names = list(reversed(path.absolute().parts[1:]))
    links = 0
    while names:
        if (name := names.pop()) == "..":
            steps = steps[:-1] or steps
            continue
        step = steps[-1][0] / name
        found = _stat_or_create(step) if create else step.lstat()
        _check_parent(step, found, trust)
        if stat.S_ISLNK(found.st_mode):
            target, links = step.readlink(), links + 1
            if links > _MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
            steps = steps[:1] if target.is_absolute() else steps
            names += reversed(target.parts[target.is_absolute() :])
        elif stat.S_ISDIR(found.st_mode) or not (names or create):
            steps.append((step, found))
        else:
            raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(step))
    real, found = steps[-1]
    if why := _foreign_owner(found, trust):
        raise UntrustedError(real, why, trust.elsewhere)
    if _others_may_write(real, found):
        raise _loose(real, found, trust)
    return real, any(not found.st_mode & _OTHERS_ENTER for _, found in steps)


def _stat_or_create(folder: Path) -> os.stat_result:
    try:
        return folder.lstat()
    except FileNotFoundError:
        # Another process may make it at this moment; whose it is, is checked next.
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder.lstat()


def _check_parent(path: Path, found: os.stat_result, trust: _Trust) -> None:
    """Raise an UntrustedError if others can replace what is in a folder, or where a link leads."""
    if path in trust.folders:
        return
    # In a user namespace the host's root has no number, but it owns the root folder.
    if (why := _foreign_owner(found, trust)) and found.st_uid != Path("/").lstat().st_uid:
        raise UntrustedError(path, why, trust.elsewhere)
    # In a folder like /tmp nobody can rename or remove what belongs to others.
    if _others_may_write(path, found) and not found.st_mode & stat.S_ISVTX:
        raise _loose(path, found, trust)


def _loose(path: Path, found: os.stat_result, trust: _Trust) -> UntrustedError:
    fix = f"run `chmod go-w {path}`, or {trust.elsewhere}"
    return UntrustedError(path, _loose_text(found), fix)
