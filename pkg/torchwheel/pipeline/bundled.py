"""Builds the bundled packages of a project: pure-Python distributions that it requires."""

import dataclasses
import hashlib
import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from torchwheel import __version__
from torchwheel.console import Progress
from torchwheel.errors import MalformedError
from torchwheel.files import discard, make_folder_atomically, sha256, sha256_by_name, write_text
from torchwheel.inspect.wheel import read_bundled
from torchwheel.json_files import read_json
from torchwheel.matrix.rules import WHEEL_SUFFIX
from torchwheel.pipeline import records
from torchwheel.pipeline.frontend import build_wheel
from torchwheel.pipeline.repair import repack
from torchwheel.pipeline.sources import source_digest, stage
from torchwheel.smoke.requirements import BUNDLED_FOLDER

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
    """Bring `dist`/bundled up to date; returns its wheels.

    Args:
        root: the folder of matrix.yaml.
        folders: folders of the distributions, or their wheels, as the matrix names them.
        dist: the output folder; the caller holds its lock.
        progress: reports each step to the user.
    """
    target, state = dist / BUNDLED_FOLDER, dist / records.FOLDER / _STATE
    key = _key(root, folders)
    if not _is_current(state, key, target):
        if folders:
            with make_folder_atomically(target) as temporary:
                for name in folders:
                    if name.endswith(WHEEL_SUFFIX):
                        read_bundled(Path(shutil.copy(root / name, temporary)))
                        continue
                    progress.step(f"bundled package {name}: building")
                    build_pure(root / name, temporary, state.with_suffix(".log"))
        else:
            discard(target)
        hashes = sha256_by_name(target.glob("*.whl"))
        write_text(state, json.dumps(dataclasses.asdict(_State(key, hashes))) + "\n")
    return tuple(sorted(target.glob("*.whl")))


def build_pure(folder: Path, out: Path, log: Path) -> Path:
    """Build the pure-Python distribution of a folder into `out`; equal sources give equal bytes."""
    # Below dist, where the next run removes the folder of a killed run.
    with tempfile.TemporaryDirectory(prefix="making-", dir=log.parent) as scratch:
        # A copy of its sources alone: other files of the folder stay out of the wheel.
        source = Path(scratch, folder.name)
        stage(folder, source)
        wheel = build_wheel(source, EPOCH, Path(scratch, "built"), log, lambda _: None)
        packed = repack(wheel, out)
        read_bundled(packed)
        return packed


def _key(root: Path, folders: Sequence[str]) -> str:
    inputs = [__version__, *((name, _content_digest(root / name)) for name in folders)]
    return hashlib.sha256(repr(inputs).encode()).hexdigest()


def _content_digest(path: Path) -> str:
    return sha256(path) if path.name.endswith(WHEEL_SUFFIX) else source_digest(path)


def _is_current(state: Path, key: str, target: Path) -> bool:
    """Whether `target` holds the wheels built from `key`, unchanged."""
    try:
        return read_json(state, _State) == _State(key, sha256_by_name(target.glob("*.whl")))
    except (OSError, MalformedError):
        return False
