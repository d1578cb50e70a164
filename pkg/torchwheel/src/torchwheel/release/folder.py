"""What a release publishes: its folder, its catalogue, and a table for people."""

import dataclasses
import os
import re
import shutil
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from torchwheel.evidence.provenance import SUFFIX
from torchwheel.index import catalogue as catalogues
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
from torchwheel.index.listing import utc_time
from torchwheel.matrix.variants import Variant
from torchwheel.pipeline import build_records as build_record
from torchwheel.release.artifacts import SMOKE_FOLDER, HashedWheel, ReleaseCase
from torchwheel.release.rules import on_gpu
from torchwheel.release.sdists import Sdist
from torchwheel.smoke import smoke_record
from torchwheel.smoke.smoke_record import SmokeRecord
from torchwheel_runtime.errors import MalformedError, TorchwheelError, UsageError
from torchwheel_runtime.files import make_folder_atomically, sha256
from torchwheel_runtime.text import WIDTH, size_text, table_rows
from torchwheel_runtime.variant_format import is_labelled


@dataclasses.dataclass(frozen=True)
class Release:
    """What a release publishes; all of it was verified.

    Attributes:
        project: the project's name.
        tag: the release's tag (default: its version).
        cases: the variants, each with its wheel and records.
        bundled: the bundled packages.
        sdists: of the project and of these.
        provenance: the texts of the files with the provenance of a wheel, by name.
    """

    project: str
    tag: str | None
    cases: Sequence[ReleaseCase]
    bundled: Sequence[HashedWheel]
    sdists: Sequence[Sdist]
    provenance: Mapping[str, str]

    @property
    def wheels(self) -> list[HashedWheel]:
        """The wheels of the variants, then those of the bundled packages."""
        return [*(case.candidate for case in self.cases), *self.bundled]


def build_asset(variant: Variant) -> str:
    """The name of the asset with a variant's build record."""
    return f"{variant.id}.build.json"


def smoke_asset(variant: Variant, number: int) -> str:
    """The name of the asset with the record of a variant's smoke run; the first has number 1."""
    return f"{variant.id}.smoke-{number}.json"


def places_of_asset(name: str, taken: Collection[str]) -> Iterator[str]:
    """Where a release folder has an asset: at its top, and where PyPI's files and records lie.

    Args:
        name: the asset's.
        taken: the wheels that were not built here, which PyPI has already (`Catalogue.taken`).
    """
    yield name
    # PyPI takes no local version, and no label.
    usual = name.endswith(".whl") and "+" not in name and not is_labelled(name)
    is_wheel = usual and name not in taken
    if is_wheel or name.endswith(".tar.gz"):
        yield f"{PYPI}/{name}"
    if record := re.fullmatch(r"(.+)\.build\.json", name):
        yield f"{build_record.FOLDER}/{record[1]}.json"
    if record := re.fullmatch(r"(.+)\.smoke-(\d+)\.json", name):
        yield f"{SMOKE_FOLDER}/{record[1]}.{record[2]}.json"


def release_catalogue(release: Release, uploaded: Mapping[str, str]) -> Catalogue:
    """The catalogue of a release: each wheel with its hash, gates and smoke runs.

    Args:
        release: its files.
        uploaded: when each file was first published, by its sha256.
    """
    bundled, sdists = release.bundled, release.sdists
    return Catalogue(
        project=release.project,
        tag=release.tag or release.cases[0].candidate.wheel.version.public,
        wheels=(
            *(_wheel(case, uploaded, release.provenance) for case in release.cases),
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


def release_table(release: Release) -> str:
    """One row a wheel: its size, its gates, and the GPUs it ran on; then the bundled packages."""
    cells = [("variant", "size", "gates", "smoke")]
    for case in release.cases:
        candidate = case.candidate
        gates = f"{len(candidate.gates):>2} ok"
        cells.append((case.variant.id, size_text(candidate.wheel.size), gates, _where(case)))
    head, *rows = table_rows("<7 >8 >5 <", cells, wrap=True)
    lines = [head, "-" * WIDTH, *rows]
    lines += [f"with {package.path.name}" for package in release.bundled]
    return "\n".join(lines)


def _where(case: ReleaseCase) -> str:
    gpus = [r.machine.gpu.name for r in case.smokes if on_gpu(case, r) and r.machine.gpu]
    return ", ".join(dict.fromkeys(gpus)) or "not run on a GPU"


def changed_names(wheels: Sequence[HashedWheel], earlier: Sequence[Catalogue]) -> Iterator[str]:
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
    wheels: Sequence[HashedWheel], out: Path, earlier: Sequence[Catalogue]
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


SUMS = "SHA256SUMS"
PYPI = "pypi"
"""Folder of what PyPI accepts: wheels without a local version, and sdists."""


def check_target(out: Path) -> None:
    """Raise if `out` holds anything but an earlier release."""
    is_release = (out / catalogues.FILE).is_file()
    if out.exists() and not is_release and (out.is_file() or any(out.iterdir())):
        raise UsageError(f"{out} is there and is no earlier release; remove it or name another")


def write_release(out: Path, release: Release, catalogue: Catalogue) -> None:
    """Replace `out` with a folder whose files are the assets of the release.

    These are the wheels, each with its metadata file and its provenance, the sdists, the records,
    the catalogue and the sums of all. The folders in it are for `assemble` itself and for PyPI.
    """
    with make_folder_atomically(out) as folder:
        for source in release.wheels:
            wheel = _copy(source, folder)
            # PEP 658 looks for it at the wheel's own address.
            beside = wheel.with_name(f"{wheel.name}.metadata")
            beside.write_bytes(source.wheel.metadata_bytes)
        for sdist in release.sdists:
            shutil.copyfile(sdist.path, folder / sdist.path.name)
        texts = {**release.provenance, catalogues.FILE: catalogues.catalogue_text(catalogue)}
        for case in release.cases:
            for build in case.builds:
                texts[build_asset(case.variant)] = build_record.record_text(build)
            for number, smoke in enumerate(case.smokes, start=1):
                texts[smoke_asset(case.variant, number)] = smoke_record.dump_smoke(smoke)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
        for name in (PYPI, SMOKE_FOLDER, build_record.FOLDER):
            (folder / name).mkdir()
        assets = [path for path in sorted(folder.iterdir()) if path.is_file()]
        for asset in assets:
            for place in places_of_asset(asset.name, catalogue.taken):
                if place != asset.name:
                    os.link(asset, folder / place)
        # As `sha256sum -c` reads them.
        sums = "".join(f"{sha256(asset)}  {asset.name}\n" for asset in assets)
        (folder / SUMS).write_text(sums, encoding="utf-8")


def _copy(wheel: HashedWheel, folder: Path) -> Path:
    """Copy a wheel; the copy must have the bytes that were checked."""
    copy = Path(shutil.copyfile(wheel.path, folder / wheel.path.name))
    if sha256(copy) != wheel.sha256:
        raise TorchwheelError(f"{wheel.path} changed while it was copied; run again")
    return copy
