"""The index of an output folder: every wheel it has a record of, and their companions."""

from collections.abc import Mapping
from pathlib import Path

from torchwheel.files import hashes
from torchwheel.index.build import build_index
from torchwheel.index.groups import everywhere, groups_of
from torchwheel.index.model import IndexedWheel
from torchwheel.inspect.wheel import read_wheel
from torchwheel.pipeline import record as records
from torchwheel.pipeline.run import Run


def index_wheels(run: Run, index: Path) -> Mapping[str, tuple[str, ...]]:
    """Replace `index`; returns the groups of each variant that is in it.

    A wheel that was tried with other companions than there are now waits for its next run.
    """
    groups: dict[str, tuple[str, ...]] = {}
    indexed = []
    tried_with = hashes(run.companions)
    for record in records.every(run.dist):
        claims = read_wheel(run.dist / record.file).claims
        if claims is not None and record.companions == tried_with:
            groups[record.variant] = groups_of(claims, run.matrix.served())
            indexed.append(IndexedWheel(run.dist / record.file, groups[record.variant]))
    every = everywhere(groups.values())
    build_index([*indexed, *(IndexedWheel(path, every) for path in run.companions)], index)
    return groups
