"""The report of a release, as JSON and as a table; reads the reports of earlier releases."""

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from torchwheel.errors import TorchwheelError, UsageError
from torchwheel.files import sha256
from torchwheel.index.contents import IndexedWheel, all_groups
from torchwheel.release.artifacts import BundledWheel, Candidate
from torchwheel.release.cases import ReleaseCase
from torchwheel.release.rules import on_gpu
from torchwheel.smoke.record import SmokeRecord
from torchwheel.text import WIDTH, size_text, table_rows

REPORT = "release.json"
SCHEMA = 1


def release_json(
    project: str,
    cases: Sequence[ReleaseCase],
    bundled: Sequence[BundledWheel],
    groups: Mapping[str, Sequence[str]],
) -> str:
    """Byte-stable JSON: each wheel's hash, gates and smoke runs; the bundled packages."""
    bundled_groups = all_groups(groups.values())
    content = {
        "schema": SCHEMA,
        "project": project,
        "wheels": [_wheel(case, groups[case.variant.id]) for case in cases],
        "bundled": [{**_file(package), "groups": bundled_groups} for package in bundled],
    }
    return json.dumps(content, indent=1) + "\n"


def _file(wheel: Candidate | BundledWheel) -> dict[str, str | int]:
    return {
        "file": wheel.path.name,
        "version": str(wheel.wheel.version),
        "sha256": wheel.sha256,
        "size": wheel.wheel.size,
    }


def _wheel(case: ReleaseCase, groups: Sequence[str]) -> dict[str, Any]:
    candidate = case.candidate
    return {
        "variant": case.variant.id,
        **_file(candidate),
        "claims": dataclasses.asdict(candidate.claims),
        "groups": groups,
        "gates": {result.name: result.says for result in candidate.gates},
        "on_gpu": any(on_gpu(case, record) for record in case.smokes),
        "smoke": [_run(record) for record in case.smokes],
    }


def _run(record: SmokeRecord) -> dict[str, Any]:
    outcomes = [test.outcome for test in record.tests]
    return {
        "date": record.date,
        "verdict": record.verdict,
        "machine": dataclasses.asdict(record.machine),
        "tests": {name: outcomes.count(name) for name in ("passed", "failed", "skipped")},
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
        except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
            faults.append(f"{release / REPORT}: not a report: {type(error).__name__}: {error}")
        except TorchwheelError as error:
            faults.append(str(error))
    if faults:
        raise TorchwheelError("\n".join(faults))
    return tuple(published)


def _wheels(release: Path) -> Iterator[IndexedWheel]:
    data = json.loads((release / REPORT).read_text(encoding="utf-8"))
    if data["schema"] != SCHEMA:
        raise ValueError(f"schema {SCHEMA} expected")
    for wheel in [*data["wheels"], *data["bundled"]]:
        path = release / Path(wheel["file"]).name
        if sha256(path) != wheel["sha256"]:
            raise TorchwheelError(f"{path}: sha256 is not the one of {REPORT}")
        yield IndexedWheel(path, tuple(wheel["groups"]))
