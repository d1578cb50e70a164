"""Sorts what was handed in by variant: exactly what is selected, each once."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from torchwheel.matrix.variants import Variant
from torchwheel.pipeline.records import BuildRecord as Build
from torchwheel.release.gather import BundledWheel, Candidate, Gathered
from torchwheel.smoke.record import SmokeRecord as Smoke
from torchwheel.text import join_names


@dataclasses.dataclass(frozen=True)
class ReleaseCase:
    """A variant, its wheel, every record of it, and the bundled packages published with it."""

    variant: Variant
    candidate: Candidate
    builds: tuple[Build, ...]
    smokes: tuple[Smoke, ...]
    bundled: Mapping[str, str]
    """Hex SHA-256 by file name."""


def sort(
    selected: Sequence[Variant],
    candidates: Sequence[Candidate],
    gathered: Gathered,
    bundled: Sequence[BundledWheel],
) -> tuple[ReleaseCase, ...]:
    """The selected variants that have exactly one wheel; `strays` speaks of the others."""
    found = ((v, [c for c in candidates if c.claims.variant == v.id]) for v in selected)
    return tuple(
        ReleaseCase(
            variant=variant,
            candidate=own[0],
            builds=tuple(f.record for f in gathered.builds if f.record.variant == variant.id),
            smokes=tuple(f.record for f in gathered.smokes if f.record.wheel == own[0].path.name),
            bundled={one.path.name: one.sha256 for one in bundled},
        )
        for variant, own in found
        if len(own) == 1
    )


def strays(
    selected: Sequence[Variant], candidates: Sequence[Candidate], gathered: Gathered
) -> Iterator[str]:
    """A line for each variant without its one wheel, and for all that belongs to none."""
    known = [variant.id for variant in selected]
    for name in known:
        own = [str(c.path) for c in candidates if c.claims.variant == name]
        if not own:
            yield f"{name}: no wheel; it is selected, so one is expected"
        elif len(own) > 1:
            yield f"{name}: {len(own)} wheels; one expected: {join_names(own)}"
    for candidate in candidates:
        if candidate.claims.variant not in known:
            yield f"{candidate.path}: variant {candidate.claims.variant} is not selected"
    claimed = {candidate.claims.variant for candidate in candidates}
    for build in gathered.builds:
        if build.record.variant not in claimed.union(known):
            yield f"{build.path}: the record of {build.record.variant}, which has no wheel here"
    wheels = {candidate.path.name for candidate in candidates}
    for smoke in gathered.smokes:
        if smoke.record.wheel not in wheels:
            yield f"{smoke.path}: the record of {smoke.record.wheel}, which is not here"
