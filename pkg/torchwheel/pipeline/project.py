"""The sources of a matrix's project: its folder, or what is fetched and unpacked into the cache.

Nothing of the project is run to fetch it.
"""

import hashlib
import os
import re
import shutil
import tempfile
from pathlib import Path

from torchwheel import process
from torchwheel.console import Progress
from torchwheel.errors import TorchwheelError, UsageError, program_error
from torchwheel.files import sha256
from torchwheel.inspect.sdist import PROJECT, is_project, unpack
from torchwheel.matrix.project_source import ProjectSource, parse_source
from torchwheel.matrix.sections import Matrix
from torchwheel.ownership import trusted_folder
from torchwheel.text import quote
from torchwheel.toolkit.cache import make_once
from torchwheel.toolkit.sdists import download_sdist, find_sdist

_FETCH_SECONDS = 900
_FATAL = re.compile(r"^(fatal|error): ")
_COMMIT = re.compile(r"[0-9a-f]{40}")
# Submodules may name any program as their transport; hooks of a fetched tree are never run.
_GIT = (
    *("git", "-c", f"core.hooksPath={os.devnull}"),
    *("-c", "protocol.allow=never", "-c", "protocol.https.allow=always"),
)


def project_folder(matrix: Matrix, root: Path, cache: Path, progress: Progress) -> Path:
    """The folder of the project's sources, fetched and unpacked first if they are elsewhere.

    Args:
        matrix: the matrix.
        root: its folder.
        cache: torchwheel's cache folder.
        progress: reports each step to the user.
    """
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


def locks_folder(matrix: Matrix, root: Path) -> Path | None:
    """The folder of the locks of the smoke tests; None if the matrix has none."""
    return root / matrix.smoke.locks if matrix.smoke.locks else None


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
    lines = _run(source, ["ls-remote", "--", source.place, *names]).splitlines()
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
        _run(source, ["-C", str(target), *arguments])
    found = _run(source, ["-C", str(target), "rev-parse", "HEAD"]).strip()
    if found != commit:
        raise TorchwheelError(f"{source.place}: expected commit {commit}, found {found}")
    for path in [*target.rglob(".git")]:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    if not is_project(target):
        raise UsageError(
            f"{source.place}@{source.version}: expected {' or '.join(PROJECT)} in it, found neither"
        )


def _run(source: ProjectSource, arguments: list[str]) -> str:
    # A repository on this machine is one that the caller names, never a submodule.
    local = ["-c", "protocol.file.allow=user"] if source.place.startswith("file:") else []
    env = {**os.environ, "GIT_TERMINAL_PROMPT": "0", "GIT_CONFIG_NOSYSTEM": "1"}
    try:
        done = process.run([*_GIT, *local, *arguments], env=env, timeout=_FETCH_SECONDS)
    except process.NotRunError as error:
        raise TorchwheelError(f"{source.place}: {error}") from error
    if done.status:
        raise program_error(f"{source.place}@{source.version}: {done.reason(_FATAL, first=True)}")
    return done.output
