"""Opens a zip archive safely: names, file types and sizes are checked before the bytes."""

import contextlib
import stat
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from torchwheel.errors import TorchwheelError


class WheelError(TorchwheelError):
    """A wheel is malformed; the text names the file and the fault."""


MAX_BYTES = 8 << 30
"""No wheel of an extension unpacks to more."""
MAX_RATIO = 200
"""Machine code is compressed about 3 to 20 times; a zip bomb about 1000 times."""
RATIO_FROM = 16 << 20
"""Below this size any ratio is harmless, e.g. that of a file of zeros."""


def _fault_of_name(name: str) -> str | None:
    path = PurePosixPath(name)
    if not name or "\0" in name or "\\" in name:
        return "is not a portable name"
    if path.is_absolute() or ":" in path.parts[0]:
        return "is an absolute name"
    if ".." in path.parts:
        return "leads out of the archive"
    return None


def _fault_of_member(info: zipfile.ZipInfo) -> str | None:
    # zipfile cuts a name at a NUL byte and keeps what the archive says in orig_filename.
    if fault := _fault_of_name(info.orig_filename):
        return fault
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        what = "a symbolic link" if kind == stat.S_IFLNK else "a special file"
        return f"is {what}; a wheel holds plain files"
    return "is encrypted" if info.flag_bits & 1 else None


def _fault(infos: list[zipfile.ZipInfo]) -> str | None:
    seen: set[str] = set()
    for info in infos:
        if fault := _fault_of_member(info):
            return f"member {info.orig_filename!r} {fault}"
        key = str(PurePosixPath(info.filename))
        if key in seen:
            return f"member {info.filename!r} is there twice"
        seen.add(key)
    total, packed = sum(i.file_size for i in infos), sum(i.compress_size for i in infos)
    if total > MAX_BYTES:
        return f"unpacks to {total} bytes; the limit is {MAX_BYTES}"
    if total > RATIO_FROM and total > MAX_RATIO * max(packed, 1):
        return f"unpacks {packed} bytes to {total}: more than {MAX_RATIO} times, a zip bomb"
    return None


@contextlib.contextmanager
def open_archive(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open the archive; any fault, now or while it is read, is a WheelError of one line."""
    try:
        with zipfile.ZipFile(path) as archive:
            if fault := _fault(archive.infolist()):
                raise WheelError(f"{path.name}: {fault}")
            yield archive
    except FileNotFoundError as error:
        raise WheelError(f"{path.name}: no such file in {path.parent}") from error
    except OSError as error:
        raise WheelError(f"{path.name}: cannot be read: {error.strerror or error}") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, UnicodeError) as error:
        fact = str(error).rstrip(".") or type(error).__name__
        raise WheelError(f"{path.name}: not a whole zip archive (cut short?): {fact}") from error
