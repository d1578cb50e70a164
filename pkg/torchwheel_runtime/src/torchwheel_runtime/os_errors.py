"""Errors of the operating system as one line: the path, what was expected and found, what to do."""

import errno
import os
from collections.abc import Mapping

from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.text import escape

_LONGEST = 200

_ELSEWHERE = "name another place"
_FREE = "free some and run again"
# What was expected, what was found, what to do.
_WORDS: Mapping[int, tuple[str, str, str]] = {
    errno.ENOENT: ("a file or folder", "none", "check the path"),
    errno.EACCES: (
        "a file or folder that this user may use",
        "no permission",
        f"change its owner or its mode, or {_ELSEWHERE}",
    ),
    errno.EPERM: (
        "a file or folder that this user may change",
        "that it is not permitted",
        f"change its owner, or {_ELSEWHERE}",
    ),
    errno.EROFS: ("a place that can be written", "a read-only file system", _ELSEWHERE),
    errno.ENOSPC: ("space on the disk", "none left", _FREE),
    errno.EDQUOT: ("space in this user's quota", "none left", _FREE),
    errno.EFBIG: (
        "room below the limit on the size of a file",
        "a larger file",
        "raise it with `ulimit -f unlimited`, or write to another disk",
    ),
    errno.ENOTDIR: ("a folder", "a file in the path", f"remove the file, or {_ELSEWHERE}"),
    errno.EISDIR: ("a file", "a folder", f"remove the folder, or {_ELSEWHERE}"),
    errno.EEXIST: ("a folder, or nothing", "a file or a link", f"remove it, or {_ELSEWHERE}"),
    errno.ENOTEMPTY: ("an empty folder", "files in it", "remove them and run again"),
    errno.ELOOP: ("a file or folder", "links that lead in a ring", "remove the link"),
    errno.ENAMETOOLONG: ("a shorter path", "one that the system refuses", _ELSEWHERE),
    errno.EIO: ("a disk that works", "an error of the device", _ELSEWHERE),
    errno.ESTALE: ("a file of the server", "that it is gone there", "run again"),
    errno.EMFILE: ("a free file handle", "none", "raise the limit with `ulimit -n`"),
    errno.ENFILE: ("a free file handle", "none in the whole system", "end other programs"),
    errno.ENOMEM: ("free memory", "none", "end other programs, or lower MAX_JOBS"),
    errno.EAGAIN: ("another process or thread", "that the limit is reached", "end other programs"),
    errno.ENOLCK: ("a file system with locks", "none", f"{_ELSEWHERE}, on a local disk"),
    errno.ETXTBSY: ("a file that is not in use", "a running program", "end it and run again"),
    errno.EADDRINUSE: ("a free port", "that another program uses it", "name another with --port"),
}


def explain(error: BaseException, place: str = "") -> str:
    """One line that says what an error means and what to do.

    Args:
        error: an error of the operating system, one of torchwheel's, or any other.
        place: where it happened, if the error does not name a file.
    """
    if isinstance(error, TorchwheelError):
        return str(error)
    if not isinstance(error, OSError) or error.errno is None:
        text = " ".join(str(error).split())
        return _after(place, f"{type(error).__name__}: {text}" if text else type(error).__name__)
    if error.filename is not None:
        place = _path_text(error.filename)
    # Python may say more than the system: "No usable temporary directory found in …".
    if error.errno in _WORDS and error.strerror == os.strerror(error.errno):
        expected, found, do = _WORDS[error.errno]
        return _after(place, f"expected {expected}, found {found}; {do}")
    return _after(place, str(error.strerror))


def _after(place: str, text: str) -> str:
    text = escape(text if len(text) <= 5 * _LONGEST else f"{text[: 5 * _LONGEST]}…")
    return f"{place}: {text}" if place else text


def _path_text(path: str | bytes | int) -> str:
    """A path in a message: on one line, and its middle left out if it is long."""
    if isinstance(path, int):
        return f"file handle {path}"
    text = os.fsdecode(path)
    if len(text) > _LONGEST:
        half = _LONGEST // 2
        text = f"{text[:half]}…{text[-half:]}"
    return escape(text) or '""'
