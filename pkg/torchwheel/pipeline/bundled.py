"""Builds a project's bundled packages: pure-Python distributions that it requires."""

import hashlib
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from torchwheel import __version__
from torchwheel.console import Progress
from torchwheel.files import discard, make_folder_atomically, sha256_by_name, write_text
from torchwheel.inspect.wheel import read_bundled
from torchwheel.pipeline import records
from torchwheel.pipeline.frontend import build_wheel
from torchwheel.pipeline.repair import repack
from torchwheel.pipeline.sources import source_digest, stage
from torchwheel.smoke.requirements import BUNDLED_FOLDER

_BUILT = "bundled.built"
# For backends that write down when they built: the oldest date a zip can hold.
_EPOCH = {"SOURCE_DATE_EPOCH": "315532800"}


def build_bundled(
    root: Path, folders: Sequence[str], dist: Path, progress: Progress
) -> tuple[Path, ...]:
    """Bring `dist`/bundled up to date; returns the wheels in it.

    Args:
        root: the folder of matrix.yaml.
        folders: the distributions' folders, as the matrix names them.
        dist: the output folder; its lock is held.
        progress: where to say what is being done.
    """
    target, built = dist / BUNDLED_FOLDER, dist / records.FOLDER / _BUILT
    key = _key(root, folders)
    if not _is(built, key, target):
        if folders:
            with make_folder_atomically(target) as aside:
                for name in folders:
                    progress.step(f"bundled package {name}: building")
                    _build(root / name, aside, built.with_suffix(".log"))
        else:
            discard(target)
        found = sha256_by_name(target.glob("*.whl"))
        write_text(built, json.dumps({"key": key, "files": found}) + "\n")
    return tuple(sorted(target.glob("*.whl")))


def _build(folder: Path, out: Path, log: Path) -> None:
    # Inside dist's own folder, where what a killed run leaves is swept.
    with tempfile.TemporaryDirectory(prefix="making-", dir=log.parent) as scratch:
        # Its sources alone: what else lies in the folder does not get in.
        source = Path(scratch, folder.name)
        stage(folder, source)
        wheel = build_wheel(source, _EPOCH, Path(scratch, "built"), log, lambda _: None)
        read_bundled(repack(wheel, out))


def _key(root: Path, folders: Sequence[str]) -> str:
    facts = [__version__, *((name, source_digest(root / name)) for name in folders)]
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def _is(built: Path, key: str, target: Path) -> bool:
    """Whether `target` holds what was made from `key`, unchanged."""
    try:
        data: Mapping[str, object] = json.loads(built.read_text(encoding="utf-8"))
        return data == {"key": key, "files": sha256_by_name(target.glob("*.whl"))}
    except (OSError, ValueError):
        return False
