"""A project's sources: fetched and unpacked, the files that a build may read, digests, copies.

Nothing of the project is run to fetch it. Its folder may be anybody's. A link counts by what it
names, is copied as a link, and may not lead out of the folder: what it leads to may be a key of
this machine.
"""

import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from torchwheel.index.client import download_sdist, find_sdist
from torchwheel.inspect.sdist import PROJECT, is_project, unpack
from torchwheel.matrix.forms import ProjectSource, parse_source
from torchwheel.matrix.sections import Matrix
from torchwheel.pipeline import git
from torchwheel.project_links import own_paths
from torchwheel.smoke.testing import Trial
from torchwheel.text_files import exists
from torchwheel_runtime.console import Progress
from torchwheel_runtime.errors import TorchwheelError, UsageError
from torchwheel_runtime.files import sha256
from torchwheel_runtime.ownership import trusted_folder
from torchwheel_runtime.toolkit.cache import make_once

_OUTPUTS = {"build", "dist"}
# Of version control, tools and editors. Other hidden folders count: `.torchwheel` has the wheel
# that a project is built with.
_NEVER_SOURCES = {
    *("__pycache__", "node_modules", ".git", ".hg", ".svn", ".nox", ".tox", ".venv", ".eggs"),
    *(".cache", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis"),
    *(".idea", ".vscode", ".vs", ".ipynb_checkpoints"),
}


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


def source_digest(folder: Path, *, tree: Path | None = None, tracked: bool = False) -> str:
    """Hex SHA-256 over the names and contents of the project's files; see `source_files`.

    A version that git's tags decide counts too. `tree` is what its build sees, the folder itself by
    default.
    """
    tree = tree or folder
    digest = hashlib.sha256((_version(folder) or "").encode())
    for path in source_files(tree, tracked=tracked):
        name, content = path.relative_to(tree).as_posix(), content_digest(path)
        executable = os.access(path, os.X_OK) and not path.is_symlink()
        digest.update(f"{name}\0{content}\0{executable}\n".encode())
    return digest.hexdigest()


def content_digest(path: Path) -> str:
    """Hex SHA-256 of a file's content; of a link a hash of what it names, which no file has."""
    if path.is_symlink():
        return f"link {hashlib.sha256(os.fsencode(path.readlink())).hexdigest()}"
    return sha256(path)


def stage(source: Path, target: Path, *, tree: Path | None = None, tracked: bool = False) -> Path:
    """Copy the project's files, without git's own, to `target`; see `source_files`.

    With a `tree` all of it is copied, and the project lies in the copy where it lies in the tree.

    Returns:
        The project's folder in the copy.
    """
    tree = tree or source
    copy_files(tree, target, source_files(tree, tracked=tracked))
    copy = target / source.relative_to(tree)
    if version := _version(source):
        git.write_version(copy, version)
    return copy


def _version(folder: Path) -> str | None:
    """The version of a project that asks git for it; None of any other."""
    return git.version(folder) if git.decides_version(folder) else None


def copy_project(source: Path, target: Path) -> None:
    """Copy a project with all that its setup.py may read: files that git ignores, and `.git`.

    Outputs, caches and virtual environments are left out. A project in a subfolder of its
    repository has no `.git`.

    Raises:
        UsageError: a link leads out of `source`.
    """
    own = source / ".git"
    state = [] if own.is_symlink() else [own, *own.rglob("*")]
    copy_files(source, target, {*_git_files(source, tracked=True), *_walk(source), *state})
    if not own.is_dir() and (version := _version(source)):
        git.write_version(target, version)


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
    return [path for path in git.files(folder, tracked) if not _is_linked_output(folder, path)]


def _is_linked_output(folder: Path, path: Path) -> bool:
    """Whether a link takes the place of an output or of a tool's folder.

    `.venv/` in .gitignore ignores a folder alone.
    """
    named = path.name in _NEVER_SOURCES or (path.name in _OUTPUTS and path.parent == folder)
    return named and path.is_symlink()


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


def project_folder(matrix: Matrix, root: Path, cache: Path, progress: Progress) -> Path:
    """The folder of the project's sources, fetched and unpacked first if they are elsewhere."""
    project = matrix.project
    source = parse_source(project.source)
    if source.kind == "folder":
        if not matrix.abis.ordinary:
            return (root / source.place).resolve()
        return _project_below(root.resolve(), source, str((root / source.place).resolve()))
    if source.kind == "git":
        return _project_below(git.checkout(source, cache, progress), source, project.source)
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


def _project_below(tree: Path, source: ProjectSource, where: str) -> Path:
    """The project's folder in a tree; `where` names it in an error."""
    folder = tree / source.below
    if not is_project(folder):
        raise UsageError(f"{where}: expected {' or '.join(PROJECT)} in it, found neither")
    return folder


def tree_of(matrix: Matrix, folder: Path) -> Path:
    """The folder that a build of the project in `folder` sees.

    An ordinary project in a subfolder of its repository may read what lies beside it.
    """
    source = parse_source(matrix.project.source)
    depth = len(source.below.parts) if matrix.abis.ordinary else 0
    tree = folder.parents[depth - 1] if depth else folder
    return tree if source.kind == "git" or exists(tree / ".git") else folder


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
