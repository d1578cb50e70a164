"""Files that are complete or absent: written under a temporary name, then renamed."""

import base64
import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from torchwheel.errors import NO_SPACE, DiskFullError, TorchwheelError

_TEMPORARY = ".temporary"


def discard(path: Path) -> None:
    """Remove a file or folder: its name disappears at once. It may be missing."""
    with contextlib.suppress(FileNotFoundError):
        _remove(_rename_to_temporary(path))


def _rename_to_temporary(path: Path) -> Path:
    """Rename `path` to a name that `remove_leftovers` knows; this needs no room on the disk."""
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}{_TEMPORARY}")
    path.rename(temporary)
    return temporary


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def remove_leftovers(folder: Path, name: str = "*") -> None:
    """Remove temporary files of `name` that killed writers left; hold the lock of its writers."""
    for path in folder.glob(f".{name}.*{_TEMPORARY}"):
        _remove(path)


def sha256(path: Path) -> str:
    """Hex SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return sha256_of(file)


def sha256_of(file: IO[bytes]) -> str:
    """Hex SHA-256 of an open file, from its position on."""
    digest = hashlib.sha256()
    while block := file.read(1 << 20):
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
    if not path.resolve().is_relative_to(folder.resolve()):
        raise TorchwheelError(f"{archive}: member {member!r} leaves its folder")
    return path


@contextlib.contextmanager
def explain_full_disk(where: Path) -> Iterator[None]:
    """Turn an error about a full disk, here or in a program that was run, into one line."""
    full = f"no space left on the disk of {where} or the temporary folder: free some and run again"
    try:
        yield
    except (OSError, TorchwheelError) as error:
        if _is_full_disk(error):
            raise DiskFullError(full) from error
        raise


def _is_full_disk(error: BaseException | None) -> bool:
    """Whether the error, or one that it was raised from, is about a full disk."""
    while error is not None:
        full = isinstance(error, OSError) and error.errno in NO_SPACE
        if full or isinstance(error, DiskFullError):
            return True
        error = error.__cause__
    return False


@contextlib.contextmanager
def write_atomically(target: Path) -> Iterator[Path]:
    """Yield a temporary path beside `target`; rename it to `target` after the block."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with explain_full_disk(target.parent):
        handle, name = tempfile.mkstemp(_TEMPORARY, f".{target.name}.", target.parent)
        os.close(handle)
        temporary = Path(name)
        try:
            yield temporary
            temporary.chmod(0o644)
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)


def write_text(target: Path, text: str) -> None:
    """Replace the content of `target` with `text`, completely or not at all."""
    with write_atomically(target) as temporary:
        temporary.write_text(text, encoding="utf-8")


@contextlib.contextmanager
def make_folder_atomically(target: Path) -> Iterator[Path]:
    """Yield a temporary folder beside `target`; it replaces `target` after the block."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with explain_full_disk(target.parent):
        temporary = Path(tempfile.mkdtemp(_TEMPORARY, f".{target.name}.", target.parent))
        try:
            yield temporary
            temporary.chmod(0o755)
            old = _rename_to_temporary(target) if os.path.lexists(target) else None
            temporary.replace(target)
            if old:
                _remove(old)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
