"""Builds a project's companions: pure-Python distributions of its repository that it requires.

Once a run, into one folder of the output, which is whole or not there. The same sources give the
same bytes: the releases of many machines, and of many days, can be compared.
"""

import hashlib
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from torchwheel import __version__
from torchwheel.check.companion import read_companion
from torchwheel.console import Progress
from torchwheel.files import discard, folder_aside, hashes, write_text
from torchwheel.pipeline import record as records
from torchwheel.pipeline.frontend import build_wheel
from torchwheel.pipeline.sources import source_digest, stage
from torchwheel.pipeline.stamp import repack
from torchwheel.smoke.companions import FOLDER

_BUILT = "companions.built"
# For backends that write down when they built: the oldest date a zip can hold.
_EPOCH = {"SOURCE_DATE_EPOCH": "315532800"}


def companions(
    root: Path, folders: Sequence[str], dist: Path, progress: Progress
) -> tuple[Path, ...]:
    """Bring `dist`/companions up to date; returns the wheels in it.

    Args:
        root: the folder of matrix.yaml.
        folders: the distributions' folders, as the matrix names them.
        dist: the output folder; its lock is held.
        progress: where to say what is being done.
    """
    target, built = dist / FOLDER, dist / records.FOLDER / _BUILT
    key = _key(root, folders)
    if not _is(built, key, target):
        if folders:
            with folder_aside(target) as aside:
                for name in folders:
                    progress.step(f"companion {name}: building")
                    _build(root / name, aside, built.with_suffix(".log"))
        else:
            discard(target)
        found = hashes(target.glob("*.whl"))
        write_text(built, json.dumps({"key": key, "files": found}) + "\n")
    return tuple(sorted(target.glob("*.whl")))


def _build(folder: Path, out: Path, log: Path) -> None:
    # Inside dist's own folder, where what a killed run leaves is swept.
    with tempfile.TemporaryDirectory(prefix="making-", dir=log.parent) as scratch:
        # Its sources alone: what else lies in the folder does not get in.
        source = Path(scratch, folder.name)
        stage(folder, source)
        wheel = build_wheel(source, _EPOCH, Path(scratch, "built"), log, lambda _: None)
        read_companion(repack(wheel, out))


def _key(root: Path, folders: Sequence[str]) -> str:
    facts = [__version__, *((name, source_digest(root / name)) for name in folders)]
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def _is(built: Path, key: str, target: Path) -> bool:
    """Whether `target` holds what was made from `key`, unchanged."""
    try:
        data: Mapping[str, object] = json.loads(built.read_text(encoding="utf-8"))
        return data == {"key": key, "files": hashes(target.glob("*.whl"))}
    except (OSError, ValueError):
        return False
