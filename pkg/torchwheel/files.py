"""Files that are either whole or absent: written aside, renamed into place."""

import base64
import contextlib
import errno
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from torchwheel.errors import TorchwheelError

_ASIDE = ".aside"


def sweep(folder: Path, name: str = "*") -> None:
    """Remove what killed writers of `name` left in `folder`; hold the lock of its writers."""
    for left in folder.glob(f".{name}.*{_ASIDE}"):
        if left.is_dir():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.unlink(missing_ok=True)


def sha256(path: Path) -> str:
    """Hex SHA-256 of a file's bytes."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def record_hash(digest: bytes) -> str:
    """A raw SHA-256 as a wheel's RECORD writes it: `sha256=`, URL-safe base64, no padding."""
    return "sha256=" + base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def inside(folder: Path, member: str, archive: str) -> Path:
    """Where `member` of `archive` goes below `folder`; a name that leads out of it is refused."""
    path = folder / member
    if not path.resolve().is_relative_to(folder.resolve()):
        raise TorchwheelError(f"{archive}: member {member!r} leaves its folder")
    return path


@contextlib.contextmanager
def no_space_is_one_line(where: Path) -> Iterator[None]:
    """Turn a full disk, met here or by a process that was started, into one line."""
    full = f"no space left on the disk of {where} or the temporary folder: free some and run again"
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise TorchwheelError(full) from error
        raise
    except TorchwheelError as error:
        if os.strerror(errno.ENOSPC) in str(error):
            raise TorchwheelError(full) from error
        raise


@contextlib.contextmanager
def written_aside(target: Path) -> Iterator[Path]:
    """Yield a temporary path beside `target`; rename it to `target` when the block ends well."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with no_space_is_one_line(target.parent):
        handle, name = tempfile.mkstemp(_ASIDE, f".{target.name}.", target.parent)
        os.close(handle)
        aside = Path(name)
        try:
            yield aside
            aside.chmod(0o644)
            aside.replace(target)
        finally:
            aside.unlink(missing_ok=True)


def write_text(target: Path, text: str) -> None:
    """Replace `target` with `text`, whole or not at all."""
    with written_aside(target) as aside:
        aside.write_text(text, encoding="utf-8")


@contextlib.contextmanager
def folder_aside(target: Path) -> Iterator[Path]:
    """Yield a folder beside `target`; it takes `target`'s place when the block ends well."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with no_space_is_one_line(target.parent):
        aside = Path(tempfile.mkdtemp(_ASIDE, f".{target.name}.", target.parent))
        try:
            yield aside
            aside.chmod(0o755)
            if target.exists():
                old = Path(tempfile.mkdtemp(_ASIDE, f".{target.name}.", target.parent))
                target.replace(old / target.name)
                aside.replace(target)
                shutil.rmtree(old, ignore_errors=True)
            else:
                aside.replace(target)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
