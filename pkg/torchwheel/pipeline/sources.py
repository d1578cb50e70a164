"""A project's sources: fetched and unpacked, the files that a build may read, digests, copies.

Nothing of the project is run to fetch it. Its folder may be anybody's. A link counts by what it
names, is copied as a link, and may not lead out of the folder: what it leads to may be a key of
this machine.
"""

import hashlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from torchwheel.index.client import download_sdist, find_sdist
from torchwheel.inspect.sdist import PROJECT, is_project, unpack
from torchwheel.matrix.forms import ProjectSource, parse_source
from torchwheel.matrix.sections import Matrix
from torchwheel.project_links import own_paths
from torchwheel.smoke.testing import Trial
from torchwheel_runtime import process
from torchwheel_runtime.console import Progress
from torchwheel_runtime.errors import TorchwheelError, UsageError, program_error
from torchwheel_runtime.files import sha256
from torchwheel_runtime.ownership import trusted_folder
from torchwheel_runtime.text import quote
from torchwheel_runtime.toolkit.cache import make_once

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
    """The project's files and links: those of git in a checkout, else all but outputs.

    Args:
        folder: the project's folder.
        tracked: in a checkout, leave out files that git does not know yet.

    Raises:
        UsageError: a link leads out of the folder.
    """
    found = own_paths(folder, _git_files(folder, tracked) or _walk(folder))
    return sorted(path for path in found if path.is_symlink() or path.is_file())


def is_plain_file(path: Path) -> bool:
    """Whether there is a file itself. What code of others left may be a link, a pipe or a device.

    Behind a link would be any file of this machine, and a pipe's reader may never end.
    """
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except (OSError, ValueError):
        return False


def source_digest(folder: Path, *, tracked: bool = False) -> str:
    """Hex SHA-256 over the names and contents of the project's files; see `source_files`."""
    digest = hashlib.sha256()
    for path in source_files(folder, tracked=tracked):
        name, content = path.relative_to(folder).as_posix(), content_digest(path)
        executable = os.access(path, os.X_OK) and not path.is_symlink()
        digest.update(f"{name}\0{content}\0{executable}\n".encode())
    return digest.hexdigest()


def content_digest(path: Path) -> str:
    """Hex SHA-256 of a file's content; of a link a hash of what it names, which no file has."""
    if path.is_symlink():
        return f"link {hashlib.sha256(os.fsencode(path.readlink())).hexdigest()}"
    return sha256(path)


def commit_time(folder: Path) -> float | None:
    """When the commit that is checked out was made, in seconds since 1970; None without git."""
    lines = _git(folder, "rev-list", "--max-count=1", "--format=%ct", "HEAD").split()
    return float(lines[-1]) if lines and lines[-1].isdigit() else None


def stage(source: Path, target: Path, *, tracked: bool = False) -> None:
    """Copy the project's files to `target`; see `source_files`."""
    copy_files(source, target, source_files(source, tracked=tracked))


def copy_project(source: Path, target: Path) -> None:
    """Copy a project with all that its setup.py may read: files that git ignores, and `.git`.

    Outputs, caches and virtual environments are left out.

    Raises:
        UsageError: a link leads out of `source`.
    """
    git = source / ".git"
    state = [] if git.is_symlink() else [git, *git.rglob("*")]
    copy_files(source, target, {*_git_files(source, tracked=True), *_walk(source), *state})


def copy_files(source: Path, target: Path, paths: Iterable[Path]) -> None:
    """Copy files, links and empty folders of `source` to the same places below `target`.

    They keep their modes and, as ninja compares them, their times. Pipes, devices and sockets are
    left out.

    Raises:
        UsageError: a link leads out of `source`.
    """
    for path in sorted(own_paths(source, paths)):
        copy = target / path.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink():
            copy.symlink_to(path.readlink())
        elif path.is_file():
            shutil.copy2(path, copy)
        elif path.is_dir():
            copy.mkdir(exist_ok=True)


def _git_files(folder: Path, tracked: bool) -> list[Path]:
    """Files that are tracked, or untracked and not ignored; empty outside a checkout."""
    others = () if tracked else ("--others", "--exclude-standard")
    output = _git(folder, "ls-files", "-z", "--cached", *others)
    paths = (folder / name for name in output.split("\0") if name)
    return [path for path in paths if not _is_linked_output(folder, path)]


def _is_linked_output(folder: Path, path: Path) -> bool:
    """Whether a link takes the place of an output or of a tool's folder.

    `.venv/` in .gitignore ignores a folder alone.
    """
    named = path.name in _NEVER_SOURCES or (path.name in _OUTPUTS and path.parent == folder)
    return named and path.is_symlink()


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
            name
            for name in folders
            if name not in skipped
            and not name.endswith(".egg-info")
            and not Path(root, name, "pyvenv.cfg").exists()
        ]
        # Links to folders are among the folders, and are not entered.
        yield from (Path(root) / name for name in (*files, *folders))


_FETCH_SECONDS = 900
_FATAL = re.compile(r"^(fatal|error): ")
_COMMIT = re.compile(r"[0-9a-f]{40}")
# Submodules may name any program as their transport; hooks of a fetched tree are never run.
_GIT_FETCH = (
    *("git", "-c", f"core.hooksPath={os.devnull}"),
    *("-c", "protocol.allow=never", "-c", "protocol.https.allow=always"),
)


def project_folder(matrix: Matrix, root: Path, cache: Path, progress: Progress) -> Path:
    """The folder of the project's sources, fetched and unpacked first if they are elsewhere."""
    project = matrix.project
    source = parse_source(project.source)
    if source.kind == "folder":
        folder = (root / source.place).resolve()
        if matrix.abis.ordinary and not is_project(folder):
            raise UsageError(f"{folder}: expected {' or '.join(PROJECT)} in it, found neither")
        return folder
    if source.kind == "git":
        return _checkout(source, cache, progress)
    archive = root / source.place
    if source.kind == "release":
        archive = download_release(source, project.sha256, cache, progress)
        if not project.sha256:
            pin = f'under project, write  sha256: "{sha256(archive)}"'
            progress.say(f"{archive.name}: not pinned; {pin}")
    if not archive.is_file():
        raise UsageError(f"project.source: {archive}: expected an sdist, found no such file")
    digest = sha256(archive)
    if project.sha256 and digest != project.sha256:
        raise TorchwheelError(
            f"hash mismatch: {archive}: expected sha256 {project.sha256} by project.sha256, found "
            f"{digest}; nothing was taken"
        )
    folder = cache / "sources" / f"{project.name}-{digest[:16]}"
    make_once(
        folder,
        lambda temporary: _unpack(archive, temporary),
        progress,
        doing=f"unpacking {archive.name}",
        busy=f"{archive.name}: another run unpacks it",
    )
    return folder


def tests_folder(matrix: Matrix, root: Path, source: Path) -> Path | None:
    """The folder of the smoke tests; None if the wheels are imported alone."""
    if matrix.abis.ordinary:
        tests = matrix.own_build.tests
        return source / tests if tests else None
    return root / matrix.smoke.tests if matrix.smoke.tests else None


def trial_of(matrix: Matrix, root: Path, source: Path, *, locked: bool) -> Trial:
    """What the project's wheels are tried with; if `locked`, in an environment of its locks."""
    section = matrix.smoke
    return Trial(
        tests=tests_folder(matrix, root, source),
        torch=section.torch,
        requires=section.requires,
        without_gpu=matrix.without_gpu,
        imports=matrix.own_build.imports,
        locks=root / section.locks if locked and section.locks else None,
    )


def download_release(
    source: ProjectSource, pinned: str | None, cache: Path, progress: Progress
) -> Path:
    """The sdist of a release, in the cache; a kept one is taken if its hash is pinned."""
    kept = trusted_folder(cache / "sdists") / f"{source.place}-{source.version}"
    if pinned:
        for path in kept.glob("*") if kept.is_dir() else ():
            if path.is_file() and sha256(path) == pinned:
                return path
    progress.step(f"{source.place}=={source.version}: looking up its sdist")
    file = find_sdist(source.place, source.version)
    return download_sdist(file, pinned, trusted_folder(kept))


def _unpack(archive: Path, target: Path) -> None:
    """Unpack an sdist so that its project is `target` itself."""
    with tempfile.TemporaryDirectory(dir=target) as temporary:
        project = unpack(archive, Path(temporary))
        for path in project.iterdir():
            shutil.move(path, target / path.name)


def _checkout(source: ProjectSource, cache: Path, progress: Progress) -> Path:
    """The tree of a git reference with its submodules, without git's own files."""
    commit = source.version
    if not _COMMIT.fullmatch(commit):
        commit = _resolve(source)
    name = hashlib.sha256(f"{source.place} {commit}".encode()).hexdigest()[:16]
    folder = cache / "sources" / f"git-{name}"
    make_once(
        folder,
        lambda temporary: _clone(source, commit, temporary),
        progress,
        doing=f"fetching {source.place}@{source.version}",
        busy=f"{source.place}: another run fetches it",
    )
    return folder


def _resolve(source: ProjectSource) -> str:
    """The commit that a branch or tag names; of an annotated tag the commit that it points to."""
    names = (f"{source.version}^{{}}", source.version)
    lines = _run_git(source, ["ls-remote", "--", source.place, *names]).splitlines()
    found = {ref: commit for commit, _, ref in (line.partition("\t") for line in lines)}
    for ref in (f"refs/tags/{source.version}^{{}}", f"refs/tags/{source.version}"):
        if ref in found:
            return found[ref]
    if head := found.get(f"refs/heads/{source.version}"):
        return head
    raise UsageError(
        f"{source.place}: expected a branch or tag {quote(source.version)}, found none; name one, "
        "or a commit of 40 digits"
    )


def _clone(source: ProjectSource, commit: str, target: Path) -> None:
    for arguments in (
        ["init", "--quiet"],
        ["fetch", "--quiet", "--depth=1", source.place, commit],
        ["checkout", "--quiet", "--detach", "FETCH_HEAD"],
        ["submodule", "--quiet", "update", "--init", "--recursive", "--depth=1"],
    ):
        _run_git(source, ["-C", str(target), *arguments])
    found = _run_git(source, ["-C", str(target), "rev-parse", "HEAD"]).strip()
    if found != commit:
        raise TorchwheelError(f"{source.place}: expected commit {commit}, found {found}")
    for path in [*target.rglob(".git")]:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    if not is_project(target):
        raise UsageError(
            f"{source.place}@{source.version}: expected {' or '.join(PROJECT)} in it, found neither"
        )


def _run_git(source: ProjectSource, arguments: list[str]) -> str:
    # A repository on this machine is one that the caller names, never a submodule.
    local = ["-c", "protocol.file.allow=user"] if source.place.startswith("file:") else []
    env = {**os.environ, "GIT_TERMINAL_PROMPT": "0", "GIT_CONFIG_NOSYSTEM": "1"}
    try:
        done = process.run([*_GIT_FETCH, *local, *arguments], env=env, timeout=_FETCH_SECONDS)
    except process.NotRunError as error:
        raise TorchwheelError(f"{source.place}: {error}") from error
    if done.status:
        raise program_error(f"{source.place}@{source.version}: {done.reason(_FATAL, first=True)}")
    return done.output
