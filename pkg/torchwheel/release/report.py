"""What a release publishes: its catalogue, and a table for people."""

import dataclasses
import os
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from torchwheel.evidence.provenance import SUFFIX
from torchwheel.index.catalogue import (
    FILE,
    Catalogue,
    CatalogueSdist,
    CatalogueWheel,
    SmokeRun,
    catalogue_wheel,
    published_hashes,
    read_catalogue,
    upload_times,
)
from torchwheel.index.contents import utc_time
from torchwheel.matrix.variants import Variant
from torchwheel.release.artifacts import BundledWheel, Candidate
from torchwheel.release.cases import ReleaseCase
from torchwheel.release.rules import on_gpu
from torchwheel.release.sdists import Sdist
from torchwheel.smoke.record import SmokeRecord
from torchwheel_runtime.errors import MalformedError, UsageError
from torchwheel_runtime.files import sha256
from torchwheel_runtime.text import WIDTH, size_text, table_rows


def build_asset(variant: Variant) -> str:
    """The name of the asset with a variant's build record."""
    return f"{variant.id}.build.json"


def smoke_asset(variant: Variant, number: int) -> str:
    """The name of the asset with the record of a variant's smoke run; the first has number 1."""
    return f"{variant.id}.smoke-{number}.json"


def release_catalogue(
    project: str,
    tag: str | None,
    cases: Sequence[ReleaseCase],
    bundled: Sequence[BundledWheel],
    sdists: Sequence[Sdist],
    uploaded: Mapping[str, str],
    provenance: Collection[str] = (),
) -> Catalogue:
    """The catalogue of a release: each wheel with its hash, gates and smoke runs.

    Args:
        project: the project's name.
        tag: the release's tag (default: its version).
        cases: the variants, each with its wheel and records.
        bundled: the bundled packages.
        sdists: of the project and of these.
        uploaded: when each file was first published, by its sha256.
        provenance: the names of the files with the provenance of a wheel.
    """
    versions = [case.candidate.wheel.version.public for case in cases]
    return Catalogue(
        project=project,
        tag=tag or versions[0],
        wheels=(
            *(_wheel(case, uploaded, provenance) for case in cases),
            *(catalogue_wheel(own.wheel, own.sha256, uploaded[own.sha256]) for own in bundled),
        ),
        sdists=tuple(
            CatalogueSdist(own.path.name, own.version, sha256(own.path), own.path.stat().st_size)
            for own in sdists
        ),
    )


def _wheel(
    case: ReleaseCase, uploaded: Mapping[str, str], provenance: Collection[str]
) -> CatalogueWheel:
    candidate = case.candidate
    beside = f"{candidate.path.name}{SUFFIX}"
    return dataclasses.replace(
        catalogue_wheel(candidate.wheel, candidate.sha256, uploaded[candidate.sha256]),
        provenance=beside if beside in provenance else None,
        gates={result.name: result.says for result in candidate.gates},
        smoke=tuple(
            _smoke_run(case, record, smoke_asset(case.variant, number))
            for number, record in enumerate(case.smokes, start=1)
        ),
        record=build_asset(case.variant),
    )


def _smoke_run(case: ReleaseCase, record: SmokeRecord, asset: str) -> SmokeRun:
    machine, gpu = record.machine, record.machine.gpu
    counts = record.tests.counts
    return SmokeRun(
        record=asset,
        date=record.date,
        verdict=record.verdict,
        on_gpu=on_gpu(case, record),
        python=machine.python,
        platform=machine.platform,
        torch=machine.torch,
        gpu=gpu.name if gpu else None,
        arch=gpu.arch if gpu else None,
        driver=gpu.driver if gpu else None,
        passed=counts.passed,
        skipped=counts.skipped,
    )


def release_table(cases: Sequence[ReleaseCase], bundled: Sequence[BundledWheel]) -> str:
    """One row a wheel: its size, its gates, and the GPUs it ran on; then the bundled packages."""
    cells = [("variant", "size", "gates", "smoke")]
    for case in cases:
        candidate = case.candidate
        gates = f"{len(candidate.gates):>2} ok"
        cells.append((case.variant.id, size_text(candidate.wheel.size), gates, _where(case)))
    head, *rows = table_rows("<7 >8 >5 <", cells, wrap=True)
    lines = [head, "-" * WIDTH, *rows]
    lines += [f"with {package.path.name}" for package in bundled]
    return "\n".join(lines)


def _where(case: ReleaseCase) -> str:
    gpus = [r.machine.gpu.name for r in case.smokes if on_gpu(case, r) and r.machine.gpu]
    return ", ".join(dict.fromkeys(gpus)) or "not run on a GPU"


def changed_names(
    wheels: Sequence[Candidate | BundledWheel], earlier: Sequence[Catalogue]
) -> Iterator[str]:
    """A line for each wheel whose name an earlier release has published with other bytes."""
    published = published_hashes(earlier)
    for wheel in wheels:
        digest, tag = published.get(wheel.path.name, (wheel.sha256, ""))
        if digest != wheel.sha256:
            yield (
                f"{wheel.path}: expected sha256 {digest}, as {tag} published this name, found "
                f"{wheel.sha256}; raise its version"
            )


def first_uploads(
    wheels: Sequence[Candidate | BundledWheel], out: Path, earlier: Sequence[Catalogue]
) -> Mapping[str, str]:
    """When each file was first published, by its sha256: as a catalogue says, else now.

    SOURCE_DATE_EPOCH stands for now, where a release must be written with equal bytes again.

    Args:
        wheels: the files of the release.
        out: its folder; an earlier run may have written a catalogue there.
        earlier: the catalogues of earlier releases.
    """
    known, now = upload_times([*earlier, *_previous(out)]), _now()
    return {wheel.sha256: known.get(wheel.sha256, now) for wheel in wheels}


def _previous(out: Path) -> Iterator[Catalogue]:
    """What an earlier run wrote to the release's folder; nothing if it is malformed."""
    try:
        yield read_catalogue(out / FILE)
    except (OSError, MalformedError):
        return


def _now() -> str:
    text = os.environ.get("SOURCE_DATE_EPOCH")
    if text and not (text.isascii() and text.isdigit() and len(text) < 12):
        raise UsageError(
            f"SOURCE_DATE_EPOCH: expected seconds since 1970, found {text!r}; unset it"
        )
    return utc_time(int(text) if text else time.time())
