"""Matches artifacts with the selected variants: each must have exactly one wheel."""

import dataclasses
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from torchwheel.matrix.sections import Matrix
from torchwheel.matrix.variants import Variant
from torchwheel.pipeline.records import BuildRecord
from torchwheel.pipeline.sources import commit_time, project_folder, source_digest, tests_folder
from torchwheel.release.artifacts import Artifacts, BundledWheel, Candidate, RecordFile
from torchwheel.smoke.record import SmokeRecord
from torchwheel.smoke.testing import Suite, read_suite
from torchwheel_runtime.console import Quiet
from torchwheel_runtime.text import join_names
from torchwheel_runtime.toolkit.cache import cache_folder


@dataclasses.dataclass(frozen=True)
class ReleaseCase:
    """A variant, its wheel, every record of it, and the bundled packages published with it."""

    variant: Variant
    candidate: Candidate
    builds: tuple[BuildRecord, ...]
    smoke_files: tuple[RecordFile[SmokeRecord], ...]
    bundled: Mapping[str, str]
    """Hex SHA-256 by file name."""

    @property
    def smokes(self) -> tuple[SmokeRecord, ...]:
        """The records of its smoke runs."""
        return tuple(file.record for file in self.smoke_files)


@dataclasses.dataclass(frozen=True)
class ReleaseSources:
    """The sources at hand, which the artifacts of a release are held to.

    Attributes:
        matrix: the matrix.
        suite: its smoke tests.
        digest: of the project's files that git knows.
        committed: when they were committed, in seconds since 1970; None outside a checkout.
        now: the time, likewise.
    """

    matrix: Matrix
    suite: Suite
    digest: str
    committed: float | None
    now: float


def read_sources(matrix: Matrix, root: Path) -> ReleaseSources:
    """Read the sources of a release; `root` is the folder of the matrix."""
    source = project_folder(matrix, root, cache_folder(), Quiet())
    tests = tests_folder(matrix, root, source)
    return ReleaseSources(
        matrix,
        read_suite(tests) if tests else Suite("", {}),
        source_digest(source, tracked=True),
        commit_time(root),
        time.time(),
    )


def release_cases(
    selected: Sequence[Variant],
    candidates: Sequence[Candidate],
    artifacts: Artifacts,
    bundled: Sequence[BundledWheel],
) -> tuple[ReleaseCase, ...]:
    """The selected variants that have exactly one wheel; `unmatched` reports the others."""
    return tuple(
        ReleaseCase(
            variant=variant,
            candidate=own[0],
            builds=tuple(f.record for f in artifacts.builds if f.record.variant == variant.id),
            smoke_files=tuple(f for f in artifacts.smokes if f.record.wheel == own[0].path.name),
            bundled={package.path.name: package.sha256 for package in bundled},
        )
        for variant in selected
        if len(own := _candidates_of(variant.id, candidates)) == 1
    )


def unmatched(
    selected: Sequence[Variant], candidates: Sequence[Candidate], artifacts: Artifacts
) -> Iterator[str]:
    """A line for each variant without exactly one wheel, and for each artifact of no variant."""
    names = [variant.id for variant in selected]
    for name in names:
        paths = [str(candidate.path) for candidate in _candidates_of(name, candidates)]
        if not paths:
            yield f"{name}: no wheel; it is selected, so one is expected"
        elif len(paths) > 1:
            yield f"{name}: {len(paths)} wheels; one expected: {join_names(paths)}"
    for candidate in candidates:
        if candidate.claims.variant not in names:
            yield f"{candidate.path}: variant {candidate.claims.variant} is not selected"
    claimed = {candidate.claims.variant for candidate in candidates}
    for build in artifacts.builds:
        if build.record.variant not in claimed.union(names):
            yield f"{build.path}: the record of {build.record.variant}, which has no wheel here"
    wheels = {candidate.path.name for candidate in candidates}
    for smoke in artifacts.smokes:
        if smoke.record.wheel not in wheels:
            yield f"{smoke.path}: the record of {smoke.record.wheel}, which is not here"


def _candidates_of(variant: str, candidates: Sequence[Candidate]) -> list[Candidate]:
    return [candidate for candidate in candidates if candidate.claims.variant == variant]
