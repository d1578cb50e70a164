"""Builds a library that the cache lacks. Of several processes, one builds and others wait."""

import contextlib
import dataclasses
import fcntl
import json
import platform
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING

from torchwheel_runtime.errors import NO_SPACE, TorchwheelError
from torchwheel_runtime.files import (
    discard,
    explain_full_disk,
    make_folder_atomically,
    private_folder,
    remove_leftovers,
    sha256,
    write_text,
)
from torchwheel_runtime.jit.key import CacheKey, LibraryRequest
from torchwheel_runtime.jit.lookup import (
    ENTRY_FILE,
    CacheEntry,
    check_or_discard,
    find_library,
    lock_of,
)
from torchwheel_runtime.jit.store import WORK_PREFIX, prune_cache
from torchwheel_runtime.loadable import LoadableFile
from torchwheel_runtime.lock import hold_lock
from torchwheel_runtime.os_errors import explain
from torchwheel_runtime.ownership import UntrustedError, trusted_path
from torchwheel_runtime.text import size_cap

if TYPE_CHECKING:
    from torchwheel_runtime.console import Progress


def write_sources(files: Mapping[str, bytes], folder: Path) -> None:
    """Make `folder` contain these files, by their relative paths, and no other.

    An equal file keeps its modification time. Any other file gets the current time, so that a build
    sees the change. The times of the originals cannot be used: when pip, git or rsync brings
    an older version back, its files can be older than the objects of the newer version.
    """
    targets = {folder / name: data for name, data in files.items()}
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir() and not path.is_symlink():
            with contextlib.suppress(OSError):  # not empty
                path.rmdir()
        elif path not in targets:
            path.unlink()
    for path, data in targets.items():
        if not path.is_file() or path.read_bytes() != data:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)


BuildFunction = Callable[[Path, Path], Path]
"""Builds a library and returns its file.

Its arguments are a folder that has the sources and nothing else, and one for the build's outputs,
which still has those of the last build.
"""


@contextlib.contextmanager
def _work_folder(target: Path, request: LibraryRequest) -> Iterator[tuple[Path, Path]]:
    """Yield the folders of this machine for a build. The caller holds the target's lock.

    A killed build may have left compilers that still write. Its folder is therefore renamed and
    removed, and the next build starts with an empty one.
    """
    # One for each machine: machines that share a home folder may not share locks.
    own = target / f"{WORK_PREFIX}{re.sub(r'[^A-Za-z0-9.-]', '_', platform.node())[:80]}"
    running = own / "running"
    if running.exists():
        discard(own)
    own.mkdir(exist_ok=True, mode=0o700)
    running.touch()
    source, output = own / "source", own / "build"
    output.mkdir(exist_ok=True)
    write_sources(request.files, source)
    try:
        yield source, output
    except TorchwheelError as error:
        running.unlink()
        # The message names the user's own file, not its copy.
        error.args = (str(error).replace(str(source), str(request.source)),)
        raise
    running.unlink()


def make_library(
    folder: Path, request: LibraryRequest, build: BuildFunction, progress: "Progress"
) -> LoadableFile:
    """The requested library, from the cache `folder` or by a build; it is open.

    If the folder cannot be written or trusted, the library is built for this process alone.

    Raises:
        TorchwheelError: the build failed, or a disk is full.
        UsageError: TORCHWHEEL_CACHE_SIZE is not a size.
    """
    cap = size_cap()
    if found := find_library(folder, request.key, progress.say):
        return found
    try:
        with explain_full_disk(folder):
            if not _can_write(folder, request.name, progress):
                return _build_once(private_folder(), request, build, progress)
            folder = trusted_path(folder)
            library = _build_once(folder, request, build, progress)
    except OSError as error:
        raise TorchwheelError(explain(error, str(folder))) from error
    # The library is built; a failure to prune others does not matter.
    with contextlib.suppress(OSError):
        prune_cache(folder, cap, keep=library.path.parent)
    return library


def _can_write(folder: Path, name: str, progress: "Progress") -> bool:
    """Create the folder if needed, and check that it takes files and locks; says why it does not.

    Raises:
        OSError: its disk is full.
    """
    try:
        with tempfile.TemporaryFile(dir=trusted_path(folder, create=True)) as file:
            # Some network file systems have no locks.
            fcntl.flock(file, fcntl.LOCK_EX)
    except UntrustedError:
        # The lookup has said why.
        progress.say(f"{name} is built for this process alone and again next time")
        return False
    except OSError as error:
        if error.errno in NO_SPACE:
            raise
        progress.say(
            f"{folder}: cannot be written ({error.strerror}): {name} is built for this process "
            "alone and again next time; set TORCHWHEEL_CACHE to a folder that can be written"
        )
        return False
    return True


def _build_once(
    folder: Path, request: LibraryRequest, build: BuildFunction, progress: "Progress"
) -> LoadableFile:
    key, name = request.key, request.name
    waited = False

    def busy() -> None:
        nonlocal waited
        waited = True
        progress.say(f"{name}: another process builds it: waiting for it")

    with hold_lock(lock_of(folder, key.target), busy) as lock:
        library = check_or_discard(folder, key)
        if library:
            return library
        if waited and (why := _recorded_failure(lock, key)):
            raise TorchwheelError(why)
        target = folder / key.target
        target.mkdir(exist_ok=True, mode=0o700)
        remove_leftovers(target)
        progress.step(f"{name}: building it")
        lock.truncate(0)
        try:
            with _work_folder(target, request) as (source, output):
                built = build(source, output)
            _store_library(target / key.content, built, request)
        except TorchwheelError as error:
            _record_failure(lock, key, str(error))
            raise
        stored = check_or_discard(folder, key)
        if stored is None:
            raise TorchwheelError(f"{name}: was changed right after its build; build it again")
        return stored


def _store_library(path: Path, built: Path, request: LibraryRequest) -> None:
    """Store the library and its entry in the folder `path`, atomically."""
    with make_folder_atomically(path) as temporary:
        library = temporary / built.name
        shutil.copyfile(built, library)
        library.chmod(0o600)
        entry = CacheEntry(
            content=request.key.content,
            name=request.name,
            archs=request.archs,
            toolkit=request.toolkit,
            torch=request.torch,
            file=built.name,
            size=library.stat().st_size,
            sha256=sha256(library),
        )
        write_text(temporary / ENTRY_FILE, json.dumps(dataclasses.asdict(entry), indent=1) + "\n")


def _record_failure(lock: IO[bytes], key: CacheKey, why: str) -> None:
    """Leave the failure for waiting processes, so that they do not all repeat the build."""
    with contextlib.suppress(OSError):
        lock.seek(0)
        lock.write(f"{key.content}\n{why}".encode())
        lock.flush()


def _recorded_failure(lock: IO[bytes], key: CacheKey) -> str | None:
    content, _, why = lock.read().decode(errors="replace").partition("\n")
    return why if content == key.content else None
