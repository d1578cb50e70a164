"""The folder in torchwheel's cache that a build has for itself: a copy of the project, objects."""

import contextlib
import hashlib
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from torchwheel.inspect.sdist import unpack
from torchwheel.pipeline.sources import content_digest, copy_project
from torchwheel.toolkit.toolkit_home import HEADER_TIME
from torchwheel_runtime.console import Progress
from torchwheel_runtime.files import explain_full_disk, write_text
from torchwheel_runtime.lock import hold_lock, say_waiting
from torchwheel_runtime.ownership import closed_folder

LOCK, LOG, OBJECTS = "lock", "build.log", "objects"
_INPUTS = "inputs"


@contextlib.contextmanager
def hold_build_folder(folder: Path, progress: Progress) -> Iterator[Path]:
    """Hold the lock of an empty folder, and empty it again at the end.

    The log stays, and the objects of a build that did not come to its end. The path is the same
    each time, so that ninja and a compiler cache recognise the commands.
    """
    folder = closed_folder(folder)
    busy = say_waiting(progress.say, "another run builds the same")
    with hold_lock(folder / LOCK, busy), explain_full_disk(folder):
        _clear(folder, (LOCK, LOG, OBJECTS))
        try:
            yield folder
            _clear(folder, (LOCK, LOG))
        finally:
            _clear(folder, (LOCK, LOG, OBJECTS))


def _clear(folder: Path, kept: Iterable[str]) -> None:
    for path in folder.iterdir():
        if path.name not in kept:
            _remove(path)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def keep_objects(folder: Path, inputs: str) -> Path:
    """The folder of a build's objects, with those of the last run if its inputs were the same.

    ninja knows which of them are finished. A library may be half-linked, so it is made again.
    """
    kept = folder / OBJECTS
    noted, objects = kept / _INPUTS, kept / "build"
    if not noted.exists() or noted.read_text(encoding="utf-8") != inputs:
        forget_objects(folder)
    objects.mkdir(parents=True, exist_ok=True)
    for path in (*objects.glob("lib*"), *objects.glob("bdist*")):
        _remove(path)
    write_text(noted, inputs)
    return objects


def forget_objects(folder: Path) -> None:
    """Remove the objects of the last run, if there are any."""
    _remove(folder / OBJECTS)


_IDLE = re.compile(r"MAX_JOBS|SCCACHE_\w+|_|SHLVL|OLDPWD")
"""Variables that change no object."""


def inputs_of(project: Path, variables: Mapping[str, str | None], facts: Sequence[object]) -> str:
    """All that decides the objects of a build: its files but those of git, variables, and facts."""
    digest = hashlib.sha256()
    for path in sorted(project.rglob("*")):
        name = path.relative_to(project)
        if ".git" not in name.parts and (path.is_symlink() or path.is_file()):
            digest.update(f"{name}\0{content_digest(path)}\n".encode("utf-8", "surrogateescape"))
    decide = {name: variables[name] for name in sorted(variables) if not _IDLE.fullmatch(name)}
    return repr((digest.hexdigest(), decide, facts))


_LEVELS = 4
"""Folders of a project's path that its copy has, too."""


def copy_source(source: Path, copies: Path) -> Path:
    """A copy of a project's sources in the folder `copies`.

    The project's code must not change its folder: git would run what .git/config names. The names
    have no blanks: projects give nvcc flags with their path, and nvcc calls the C++ compiler by a
    shell, without quotes around these flags.
    """
    copies.mkdir()
    if source.is_file():
        unpacked = unpack(source, copies)
        # Equal times, as ninja compares them with those of the objects.
        for path in unpacked.rglob("*"):
            os.utime(path, (HEADER_TIME, HEADER_TIME), follow_symlinks=False)
        inside = plain(str(unpacked.relative_to(copies)))
        return copies if unpacked == copies else unpacked.rename(copies / inside)
    copy = copies.joinpath(*map(plain, source.parts[1:][-_LEVELS:]))
    copy_project(source, copy)
    return copy


def plain(path: str) -> str:
    """A path with an underscore for each character that a shell or a list of flags may split at."""
    return re.sub(r"[^\w.+/-]", "_", path, flags=re.ASCII)


def link_siblings(source: Path, copy: Path) -> None:
    """Put links to what lies beside a project beside its copy, and beside the folders above it.

    Without a sandbox its setup.py may read all of that, and some read `../README.md`.
    """
    if source.is_file():
        return
    for original, place in zip(source.parents, copy.parents[: _LEVELS - 1], strict=False):
        with contextlib.suppress(PermissionError):
            for sibling in original.iterdir():
                link = place / sibling.name
                if not os.path.lexists(link):
                    link.symlink_to(sibling)
