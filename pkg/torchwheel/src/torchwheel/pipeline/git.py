"""Asks git: a checkout's files, commit and version; and fetches a reference.

Nothing of a repository is run for it: no program that its configuration names, and no hook.
"""

import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from packaging.version import InvalidVersion, Version

from torchwheel.inspect.sdist import PROJECT
from torchwheel.matrix.forms import ProjectSource
from torchwheel.text_files import MAX_BYTES, exists, read_toml
from torchwheel_runtime import process
from torchwheel_runtime.console import Progress
from torchwheel_runtime.errors import TorchwheelError, UsageError, program_error
from torchwheel_runtime.files import write_text
from torchwheel_runtime.text import quote
from torchwheel_runtime.toolkit.cache import make_once

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


def files(folder: Path, tracked: bool) -> Iterator[Path]:
    """Files that are tracked, or untracked and not ignored, those of submodules too.

    Nothing outside a checkout.
    """
    others = () if tracked else ("--others", "--exclude-standard")
    output = _ask(folder, "ls-files", "-z", "--cached", *others)
    for path in (folder / name for name in output.split("\0") if name):
        # A repository in a repository: git lists its folder, and nothing of it.
        if not path.is_symlink() and exists(path / ".git"):
            yield from files(path, tracked)
        else:
            yield path


def empty_submodules(folder: Path) -> list[str]:
    """The submodules below a folder whose files were not fetched."""
    staged = _ask(folder, "ls-files", "-z", "--cached", "--stage").split("\0")
    names = [line.partition("\t")[2] for line in staged if line.startswith("160000 ")]
    return [name for name in names if not exists(folder / name / ".git")]


def root(folder: Path) -> Path | None:
    """The top folder of the checkout that `folder` is in; None outside one."""
    found = _ask(folder, "rev-parse", "--show-toplevel").removesuffix("\n")
    return Path(found) if found else None


def commit_time(folder: Path) -> float | None:
    """When the commit that is checked out was made, in seconds since 1970; None without git."""
    lines = _ask(folder, "rev-list", "--max-count=1", "--format=%ct", "HEAD").split()
    return float(lines[-1]) if lines and lines[-1].isdigit() else None


# Tools that take a project's version from git's tags. Without `.git` they take that of PKG-INFO, as
# an sdist has it.
_VERSION_TOOLS = re.compile(
    rb"(setuptools|hatch|vcs)[_-](scm|vcs|versioning)|use_scm_version|versioningit"
)
_TAG = re.compile(r"(?:[\w-]+-)?[vV]?(\d[^+]*)(?:\+.*)?")
_PKG_INFO = "PKG-INFO"
NO_TAG = "0.1.dev1"
"""The version where no tag is known, as setuptools-scm has it."""


def decides_version(folder: Path) -> bool:
    """Whether a project takes its version from git, and not from the PKG-INFO of an sdist."""
    if exists(folder / _PKG_INFO):
        return False
    for file in (folder / name for name in (*PROJECT, "setup.cfg")):
        if file.is_file():
            with file.open("rb") as opened:
                if _VERSION_TOOLS.search(opened.read(MAX_BYTES)):
                    return True
    return False


def version(folder: Path) -> str | None:
    """The version by the newest tag of the commit that is checked out; None outside a checkout.

    Like that of setuptools-scm: after a tag the next version in development. What is not committed
    does not count.
    """
    described = _ask(folder, "describe", "--tags", "--long", "--match", "*[0-9]*").strip()
    tag, distance, _ = described.rsplit("-", 2) if described.count("-") > 1 else ("", "", "")
    found = version_of_tag(tag)
    if found and distance == "0":
        return found
    if found:
        following = re.sub(r"\d+$", lambda last: str(int(last[0]) + 1), found)
        return f"{following}.dev{distance}"
    return NO_TAG if root(folder) else None


def version_of_tag(tag: str) -> str | None:
    """E.g. "1.0" of "v1.0+cu12" and of "release-1.0"; None of a tag that names none."""
    match = _TAG.fullmatch(tag)
    try:
        return str(Version(match[1])) if match else None
    except InvalidVersion:
        return None


def write_version(project: Path, found: str) -> None:
    """Write the PKG-INFO by which a project without `.git` knows its version."""
    file = project / PROJECT[0]
    # hatchling wants a name, and setup.py has its own.
    declared = read_toml(file).get("project", {}) if exists(file) else {}
    name = declared.get("name", "unknown")
    write_text(project / _PKG_INFO, f"Metadata-Version: 2.1\nName: {name}\nVersion: {found}\n")


def _ask(folder: Path, *arguments: str) -> str:
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


_FETCH_SECONDS = 900
_FATAL = re.compile(r"^(fatal|error): ")
_COMMIT = re.compile(r"[0-9a-f]{40}")
# Submodules may name any program as their transport; hooks of a fetched tree are never run.
_GIT_FETCH = (
    *("git", "-c", f"core.hooksPath={os.devnull}"),
    *("-c", "protocol.allow=never", "-c", "protocol.https.allow=always"),
)


def checkout(source: ProjectSource, cache: Path, progress: Progress) -> Path:
    """The tree of a git reference with its submodules, without git's own files."""
    commit, tagged = source.version, None
    if not _COMMIT.fullmatch(commit):
        commit, is_tag = _resolve(source)
        tagged = version_of_tag(source.version) if is_tag else None
    key = f"{source.place} {commit} {source.below} {tagged or ''}"
    folder = cache / "sources" / f"git-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
    where = f"{source.place}@{source.version}"

    def clone(target: Path) -> None:
        _clone(source, commit, target)
        project = target / source.below
        if project.is_dir() and decides_version(project):
            if tagged is None:
                progress.say(
                    f"{where}: has its version from git's tags, and names none: {NO_TAG}; name a "
                    "tag, or set SETUPTOOLS_SCM_PRETEND_VERSION in build.environment"
                )
            write_version(project, tagged or NO_TAG)

    make_once(
        folder,
        clone,
        progress,
        doing=f"fetching {where}",
        busy=f"{source.place}: another run fetches it",
    )
    return folder


def _resolve(source: ProjectSource) -> tuple[str, bool]:
    """The commit that a branch or tag names, and whether it is a tag.

    Of an annotated tag it is the commit that it points to.
    """
    names = (f"{source.version}^{{}}", source.version)
    lines = _fetch(source, ["ls-remote", "--", source.place, *names]).splitlines()
    found = {ref: commit for commit, _, ref in (line.partition("\t") for line in lines)}
    for ref in (f"refs/tags/{source.version}^{{}}", f"refs/tags/{source.version}"):
        if ref in found:
            return found[ref], True
    if head := found.get(f"refs/heads/{source.version}"):
        return head, False
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
        _fetch(source, ["-C", str(target), *arguments])
    found = _fetch(source, ["-C", str(target), "rev-parse", "HEAD"]).strip()
    if found != commit:
        raise TorchwheelError(f"{source.place}: expected commit {commit}, found {found}")
    for path in [*target.rglob(".git")]:
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def _fetch(source: ProjectSource, arguments: list[str]) -> str:
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
