"""Wheels of pure-Python distributions: those that a project requires, and torchwheel's own."""

import dataclasses
import hashlib
import importlib.metadata
import json
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from packaging.utils import NormalizedName, canonicalize_name

import torchwheel
import torchwheel_runtime
from torchwheel import __version__, data
from torchwheel.inspect.wheel import RUNTIME, Wheel, read_bundled
from torchwheel.matrix.rules import WHEEL_SUFFIX
from torchwheel.pipeline import build_records
from torchwheel.pipeline.frontend import build_wheel
from torchwheel.pipeline.repair import repack, repack_members
from torchwheel.pipeline.sources import source_digest, stage
from torchwheel.smoke.requirements import (
    BUNDLED_FOLDER,
    LOCK_OPTIONS,
    Pin,
    is_pinned,
    read_lock,
    requirements,
)
from torchwheel_runtime.console import Progress
from torchwheel_runtime.errors import MalformedError, TorchwheelError
from torchwheel_runtime.files import (
    discard,
    make_folder_atomically,
    record_hash,
    sha256,
    sha256_by_name,
    write_text,
)
from torchwheel_runtime.json_files import read_json
from torchwheel_runtime.pip import run_pip

_STATE = "bundled.built"
EPOCH = {"SOURCE_DATE_EPOCH": "315532800"}
"""For backends that record the build time: the oldest date that a zip can hold."""


@dataclasses.dataclass(frozen=True)
class _State:
    """The key that the wheels were built from, and the SHA-256 of each."""

    key: str
    files: Mapping[str, str]


def build_bundled(
    root: Path, folders: Sequence[str], dist: Path, progress: Progress
) -> tuple[Path, ...]:
    """Bring `dist`/bundled up to date, whose lock the caller holds; returns its wheels.

    `folders` are folders of distributions, or wheels, as the matrix names them. What
    torchwheel-runtime requires is bundled with it.
    """
    target, state = dist / BUNDLED_FOLDER, dist / build_records.FOLDER / _STATE
    key = _key(root, folders)
    if not _is_current(state, key, target):
        if folders:
            with make_folder_atomically(target) as temporary:
                for name in folders:
                    if name.endswith(WHEEL_SUFFIX):
                        shutil.copy(root / name, temporary)
                        continue
                    progress.step(f"bundled package {name}: building")
                    build_pure(root / name, temporary, state.with_suffix(".log"))
                wheels = [read_bundled(path) for path in temporary.glob("*.whl")]
                for project, pin in pinned_with(wheels).items():
                    _take_pinned(project, pin, target, temporary, progress)
        else:
            discard(target)
        hashes = sha256_by_name(target.glob("*.whl"))
        write_text(state, json.dumps(dataclasses.asdict(_State(key, hashes))) + "\n")
    return tuple(sorted(target.glob("*.whl")))


def build_pure(folder: Path, out: Path, log: Path, *, tree: Path | None = None) -> Path:
    """Build the pure-Python distribution of a folder into `out`; equal sources give equal bytes.

    Links of the folder may lead into `tree`, the folder itself by default.
    """
    # Below dist, where the next run removes the folder of a killed run.
    with tempfile.TemporaryDirectory(prefix="making-", dir=log.parent) as scratch:
        # A copy of its sources alone: other files of the folder stay out of the wheel.
        source = stage(folder, Path(scratch, folder.name), tree=tree)
        wheel = build_wheel(source, EPOCH, Path(scratch, "built"), log, lambda _: None)
        packed = repack(wheel, out)
        read_bundled(packed)
        return packed


LOCK = data.FOLDER / "pipeline.lock.txt"
"""The files that torchwheel needs itself, by their hashes."""


def pinned_with(wheels: Iterable[Wheel]) -> Mapping[NormalizedName, Pin]:
    """What torchwheel-runtime requires, if it is among the wheels, and the lock pins.

    With it an index has all that a wheel brings beside torch. So one call of pip, which asks that
    index alone, can install the wheel.
    """
    pins = read_lock(LOCK, {})
    own = [wheel for wheel in wheels if wheel.name == RUNTIME]
    needed = (requirement for wheel in own for requirement in requirements(wheel))
    return {
        name: pins[name]
        for requirement in needed
        if is_pinned(requirement, pins) and (name := canonicalize_name(requirement.name))
    }


def _take_pinned(name: str, pin: Pin, old: Path, target: Path, progress: Progress) -> None:
    """Put the wheel of a pin into the folder `target`; one that is in `old` is not downloaded."""
    for wheel in old.glob("*.whl"):
        if sha256(wheel) in pin.hashes:
            shutil.copy(wheel, target)
            return
    progress.step(f"bundled package {name}: downloading")
    with tempfile.TemporaryDirectory(prefix="torchwheel-") as folder:
        lock = Path(folder, "lock.txt")
        hashes = " ".join(f"--hash=sha256:{digest}" for digest in sorted(pin.hashes))
        write_text(lock, f"{name}=={pin.version} {hashes}\n")
        arguments = ["download", "--quiet", "--no-deps", "--dest", folder, *LOCK_OPTIONS, str(lock)]
        run_pip(arguments, f"bundled package {name}")
        (wheel,) = Path(folder).glob("*.whl")
        read_bundled(Path(shutil.copy(wheel, target)))


def _key(root: Path, folders: Sequence[str]) -> str:
    inputs = [
        (name, (sha256 if name.endswith(WHEEL_SUFFIX) else source_digest)(root / name))
        for name in folders
    ]
    return hashlib.sha256(repr([__version__, sha256(LOCK), *inputs]).encode()).hexdigest()


def _is_current(state: Path, key: str, target: Path) -> bool:
    """Whether `target` holds the wheels built from `key`, unchanged."""
    try:
        return read_json(state, _State) == _State(key, sha256_by_name(target.glob("*.whl")))
    except (OSError, MalformedError):
        return False


PACKAGES = tuple(Path(half.__path__[0]) for half in (torchwheel_runtime, torchwheel))
"""The folders of the two halves, the one first that extensions require."""
# What an installer writes beside the files of the wheel.
_OF_INSTALLERS = frozenset({"INSTALLER", "REQUESTED", "direct_url.json", "RECORD"})


def own_wheels(out: Path) -> tuple[Path, ...]:
    """Write the wheels of the running torchwheel into the folder `out`: both halves.

    A source tree is built. An installed package is packed again, each file as RECORD has it; so
    both give the bytes of the wheel that every index of ours offers.

    Raises:
        TorchwheelError: the installed files are not those that were installed.
    """
    return tuple(_own_wheel(package, out) for package in PACKAGES)


def _own_wheel(package: Path, out: Path) -> Path:
    project = package.parents[1]
    if (project / "pyproject.toml").is_file():
        # In a checkout the recipes are links into docker/.
        tree = project.parents[1] if project.parent.name == "pkg" else None
        with tempfile.TemporaryDirectory(prefix="torchwheel-") as scratch:
            return build_pure(project, out, Path(scratch, "build.log"), tree=tree)
    name = f"{package.name}-{__version__}-py3-none-any.whl"
    wheel = repack_members(dict(_installed_files(package)), out / name)
    read_bundled(wheel)
    return wheel


def _installed_files(package: Path) -> Iterator[tuple[str, bytes]]:
    project = package.name.replace("_", "-")
    try:
        distribution = importlib.metadata.distribution(project)
    except importlib.metadata.PackageNotFoundError:
        raise TorchwheelError(
            f"{package}: expected an installed {project}, found its files alone; install its wheel"
        ) from None
    for file in distribution.files or ():
        name = file.as_posix()
        if file.suffix == ".pyc" or ".." in file.parts or file.name in _OF_INSTALLERS:
            continue
        content = Path(str(distribution.locate_file(file))).read_bytes()
        found = record_hash(hashlib.sha256(content).digest())
        if file.hash is None or f"{file.hash.mode}={file.hash.value}" != found:
            raise TorchwheelError(
                f"{name}: is not the file that was installed; reinstall {project}"
            )
        yield name, content
