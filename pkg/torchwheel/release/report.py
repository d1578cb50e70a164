"""The report of a release, as JSON and as a table; reads the reports of earlier releases."""

import dataclasses
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from torchwheel.errors import MalformedError, TorchwheelError, UsageError
from torchwheel.files import sha256
from torchwheel.index.contents import IndexedWheel, all_groups, utc_time
from torchwheel.json_files import FileName, read_json
from torchwheel.os_errors import explain
from torchwheel.release.artifacts import BundledWheel, Candidate
from torchwheel.release.cases import ReleaseCase
from torchwheel.release.rules import on_gpu
from torchwheel.release.sdists import Sdist
from torchwheel.smoke.record import SmokeRecord
from torchwheel.text import WIDTH, size_text, table_rows

REPORT = "release.json"
SCHEMA = 1


def release_json(
    project: str,
    cases: Sequence[ReleaseCase],
    bundled: Sequence[BundledWheel],
    sdists: Sequence[Sdist],
    groups: Mapping[str, Sequence[str]],
    uploaded: Mapping[str, str],
) -> str:
    """Byte-stable JSON: each wheel's hash, gates and smoke runs; the bundled packages.

    Args:
        project: the project's name.
        cases: the variants, each with its wheel and records.
        bundled: the bundled packages.
        sdists: of the project and of these.
        groups: the index groups by variant.
        uploaded: when each file was first published, by its sha256.
    """
    bundled_groups = all_groups(groups.values())
    content = {
        "schema": SCHEMA,
        "project": project,
        "wheels": [_wheel(case, groups[case.variant.id], uploaded) for case in cases],
        "bundled": [{**_file(package, uploaded), "groups": bundled_groups} for package in bundled],
        "sdists": [_sdist(sdist) for sdist in sdists],
    }
    return json.dumps(content, indent=1) + "\n"


def _file(wheel: Candidate | BundledWheel, uploaded: Mapping[str, str]) -> dict[str, str | int]:
    return {
        "file": wheel.path.name,
        "version": str(wheel.wheel.version),
        "sha256": wheel.sha256,
        "size": wheel.wheel.size,
        "uploaded": uploaded[wheel.sha256],
    }


def _sdist(sdist: Sdist) -> dict[str, str | int]:
    return {
        "file": sdist.path.name,
        "version": sdist.version,
        "sha256": sha256(sdist.path),
        "size": sdist.path.stat().st_size,
    }


def _wheel(case: ReleaseCase, groups: Sequence[str], uploaded: Mapping[str, str]) -> dict[str, Any]:
    candidate = case.candidate
    return {
        "variant": case.variant.id,
        **_file(candidate, uploaded),
        "claims": dataclasses.asdict(candidate.claims),
        "groups": groups,
        "gates": {result.name: result.says for result in candidate.gates},
        "on_gpu": any(on_gpu(case, record) for record in case.smokes),
        "smoke": [_run(record) for record in case.smokes],
    }


def _run(record: SmokeRecord) -> dict[str, Any]:
    return {
        "date": record.date,
        "verdict": record.verdict,
        "machine": dataclasses.asdict(record.machine),
        "tests": dataclasses.asdict(record.tests.counts),
    }


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


@dataclasses.dataclass(frozen=True)
class _ReportedWheel:
    """A wheel of a report, as far as later releases need it."""

    file: FileName
    sha256: str
    groups: tuple[str, ...]
    uploaded: str | None = None


@dataclasses.dataclass(frozen=True)
class _Reported:
    """A report, as far as later releases need it."""

    wheels: tuple[_ReportedWheel, ...]
    bundled: tuple[_ReportedWheel, ...]

    @classmethod
    def read(cls, report: Path) -> tuple[_ReportedWheel, ...]:
        """The wheels that a report lists."""
        do = "download the release again"
        reported = read_json(report, cls, schema=SCHEMA, others=True, do=do)
        return (*reported.wheels, *reported.bundled)


def read_earlier(folder: Path) -> tuple[IndexedWheel, ...]:
    """The wheels of all releases in `folder`, each a folder with its report.

    Raises:
        TorchwheelError: a line for each release whose files have changed.
    """
    if not folder.is_dir():
        raise UsageError(f"a folder of earlier releases expected at {folder}, which is none")
    published: list[IndexedWheel] = []
    faults: list[str] = []
    # A folder without wheels is no release; one with wheels needs a report that proves them.
    for release in sorted({wheel.parent for wheel in folder.glob("*/*.whl")}):
        try:
            published += _wheels(release)
        except OSError as error:
            faults.append(explain(error))
        except TorchwheelError as error:
            faults.append(str(error))
    if faults:
        raise TorchwheelError("\n".join(faults))
    return tuple(published)


def _wheels(release: Path) -> Iterator[IndexedWheel]:
    for wheel in _Reported.read(release / REPORT):
        path = release / wheel.file
        if sha256(path) != wheel.sha256:
            raise TorchwheelError(f"{path}: sha256 is not the one of {REPORT}")
        yield IndexedWheel(path, wheel.groups, wheel.uploaded)


def upload_times(
    wheels: Sequence[Candidate | BundledWheel], out: Path, earlier: Path | None
) -> Mapping[str, str]:
    """When each file was first published, by its sha256: as a report says, else now.

    SOURCE_DATE_EPOCH stands for now, where a release must be written with equal bytes again.

    Args:
        wheels: the files of the release.
        out: its folder; an earlier run may have written a report there.
        earlier: the folder of earlier releases.
    """
    known: dict[str, str] = {}
    for file in (out / REPORT, *(earlier.glob(f"*/{REPORT}") if earlier else ())):
        for digest, first in _recorded_times(file):
            known[digest] = min(first, known.get(digest, first))
    now = _now()
    return {wheel.sha256: known.get(wheel.sha256, now) for wheel in wheels}


def _now() -> str:
    text = os.environ.get("SOURCE_DATE_EPOCH")
    if text and not (text.isascii() and text.isdigit() and len(text) < 12):
        raise UsageError(
            f"SOURCE_DATE_EPOCH: expected seconds since 1970, found {text!r}; unset it"
        )
    return utc_time(int(text) if text else time.time())


def _recorded_times(report: Path) -> Iterator[tuple[str, str]]:
    """The sha256 and the upload time of each file in a report; none if there is no report."""
    try:
        files = _Reported.read(report)
    except (OSError, MalformedError):
        return
    yield from ((file.sha256, file.uploaded) for file in files if file.uploaded)
