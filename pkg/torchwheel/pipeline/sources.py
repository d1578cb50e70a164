"""The files a build may read from the project's folder, and their digest."""

import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from torchwheel import process
from torchwheel.errors import TorchwheelError
from torchwheel.files import path_inside

_OUTPUTS = {"build", "dist"}
# Of version control, tools and editors. Other hidden folders count: `.torchwheel` has the wheel
# that a project is built with.
_NEVER_SOURCES = {
    *("__pycache__", "node_modules", ".git", ".hg", ".svn", ".nox", ".tox", ".venv", ".eggs"),
    *(".cache", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis"),
    *(".idea", ".vscode", ".vs", ".ipynb_checkpoints"),
}

# A checkout's own configuration can name programs, which git would start: to watch the files, after
# a change of the index, to fetch what a partial clone lacks. Listing files needs none of them.
# core.excludesFile stays as it is: the user's own patterns keep an editor's files out of a build.
_GIT = ("git", "-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}")
_GIT_VARIABLES = {
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
}
_GIT_SECONDS = 60
"""Time limit of a git command: a named pipe as core.excludesFile or .gitignore has no end."""


def source_files(folder: Path, *, tracked: bool = False) -> list[Path]:
    """The project's files: those of git in a checkout, else the whole tree without outputs.

    Args:
        folder: the project's folder.
        tracked: in a checkout, leave out files that git does not know yet.
    """
    return sorted(path for path in _git_files(folder, tracked) or _walk(folder) if path.is_file())


def source_digest(folder: Path, *, tracked: bool = False) -> str:
    """Hex SHA-256 over the names and contents of the project's files; see `source_files`."""
    digest = hashlib.sha256()
    for path in source_files(folder, tracked=tracked):
        name = path.relative_to(folder).as_posix()
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(f"{name}\0{content}\0{os.access(path, os.X_OK)}\n".encode())
    return digest.hexdigest()


def commit_time(folder: Path) -> float | None:
    """When the commit that is checked out was made, in seconds since 1970; None without git."""
    lines = _git(folder, "rev-list", "--max-count=1", "--format=%ct", "HEAD").split()
    return float(lines[-1]) if lines and lines[-1].isdigit() else None


def stage(source: Path, target: Path, *, tracked: bool = False) -> None:
    """Copy the project's files to `target`, with their times, as ninja compares them."""
    for path in source_files(source, tracked=tracked):
        copy = path_inside(target, str(path.relative_to(source)), source.name)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, copy)


def _git_files(folder: Path, tracked: bool) -> list[Path]:
    """Files that are tracked, or untracked and not ignored; empty outside a checkout."""
    others = () if tracked else ("--others", "--exclude-standard")
    output = _git(folder, "ls-files", "-z", "--cached", *others)
    return [folder / name for name in output.split("\0") if name]


def _git(folder: Path, *arguments: str) -> str:
    """The output of a git command in a folder; empty where it fails.

    Raises:
        TorchwheelError: it does not end in time.
    """
    command = [*_GIT, "-C", str(folder), *arguments]
    variables = {**os.environ, **_GIT_VARIABLES}
    try:
        done = process.run(
            command, env=variables, timeout=_GIT_SECONDS, undecodable="surrogateescape"
        )
    except process.TimedOutError as error:
        raise TorchwheelError(
            f"{folder}: git {arguments[0]}: expected an answer in {_GIT_SECONDS} s, found none; "
            "look for a pipe or a slow disk among .gitignore and the files that .git/config names"
        ) from error
    except process.NotRunError:
        return ""
    return "" if done.status else done.output


def _walk(folder: Path) -> Iterator[Path]:
    for root, folders, files in os.walk(folder):
        skipped = _NEVER_SOURCES | (_OUTPUTS if Path(root) == folder else set())
        folders[:] = [
            name for name in folders if name not in skipped and not name.endswith(".egg-info")
        ]
        yield from (Path(root) / name for name in files)
