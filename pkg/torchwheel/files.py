"""Files that are either whole or absent: written aside, renamed into place."""

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

_TEMPORARY = ".aside"


def discard(path: Path) -> None:
    """Have a file or folder gone at once; what it holds follows. It need not be there."""
    with contextlib.suppress(FileNotFoundError):
        _remove(_rename_temporary(path))


def _rename_temporary(path: Path) -> Path:
    """Rename `path` to what `sweep` removes; no new folder, for which a full disk has no room."""
    aside = path.with_name(f".{path.name}.{os.urandom(4).hex()}{_TEMPORARY}")
    path.rename(aside)
    return aside


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def remove_leftovers(folder: Path, name: str = "*") -> None:
    """Remove what killed writers of `name` left in `folder`; hold the lock of its writers."""
    for left in folder.glob(f".{name}.*{_TEMPORARY}"):
        _remove(left)


def sha256(path: Path) -> str:
    """Hex SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return sha256_of(file)


def sha256_of(file: IO[bytes]) -> str:
    """Hex SHA-256 of an open file, from where it stands."""
    digest = hashlib.sha256()
    while block := file.read(1 << 20):
        digest.update(block)
    return digest.hexdigest()


def sha256_by_name(paths: Iterable[Path]) -> dict[str, str]:
    """Hex SHA-256 of files, by their names."""
    return {path.name: sha256(path) for path in sorted(paths)}


def record_hash(digest: bytes) -> str:
    """A raw SHA-256 as a wheel's RECORD writes it: `sha256=`, URL-safe base64, no padding."""
    return "sha256=" + base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def path_inside(folder: Path, member: str, archive: str) -> Path:
    """Where `member` of `archive` goes below `folder`; a name that leads out of it is refused."""
    path = folder / member
    if not path.resolve().is_relative_to(folder.resolve()):
        raise TorchwheelError(f"{archive}: member {member!r} leaves its folder")
    return path


@contextlib.contextmanager
def explain_full_disk(where: Path) -> Iterator[None]:
    """Turn a full disk, met here or by a program that was run, into one line."""
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
    """Yield a temporary path beside `target`; rename it to `target` when the block ends well."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with explain_full_disk(target.parent):
        handle, name = tempfile.mkstemp(_TEMPORARY, f".{target.name}.", target.parent)
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
    with write_atomically(target) as aside:
        aside.write_text(text, encoding="utf-8")


@contextlib.contextmanager
def make_folder_atomically(target: Path) -> Iterator[Path]:
    """Yield a folder beside `target`; it takes `target`'s place when the block ends well."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with explain_full_disk(target.parent):
        aside = Path(tempfile.mkdtemp(_TEMPORARY, f".{target.name}.", target.parent))
        try:
            yield aside
            aside.chmod(0o755)
            old = _rename_temporary(target) if os.path.lexists(target) else None
            aside.replace(target)
            if old:
                _remove(old)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
