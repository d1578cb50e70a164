"""A digest of everything a build may read from the project's folder."""

import hashlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

_OUTPUTS = {"build", "dist"}
_NEVER_SOURCES = {"__pycache__", "node_modules"}


def source_digest(folder: Path) -> str:
    """Hex SHA-256 over names and contents: git's files if it is a checkout, else the whole tree."""
    digest = hashlib.sha256()
    for path in sorted(_git_files(folder) or _walk(folder)):
        if path.is_file():
            name = path.relative_to(folder).as_posix()
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            digest.update(f"{name}\0{content}\0{os.access(path, os.X_OK)}\n".encode())
    return digest.hexdigest()


def _git_files(folder: Path) -> list[Path]:
    """Tracked files and untracked ones that are not ignored; none outside a checkout."""
    command = [
        "git",
        "-C",
        str(folder),
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ]
    try:
        done = subprocess.run(command, capture_output=True, check=False)
    except FileNotFoundError:
        return []
    if done.returncode:
        return []
    return [folder / name for name in os.fsdecode(done.stdout).split("\0") if name]


def _walk(folder: Path) -> Iterator[Path]:
    for root, folders, files in os.walk(folder):
        skipped = _NEVER_SOURCES | (_OUTPUTS if Path(root) == folder else set())
        folders[:] = [
            name
            for name in folders
            if name not in skipped and not name.startswith(".") and not name.endswith(".egg-info")
        ]
        yield from (Path(root) / name for name in files)
