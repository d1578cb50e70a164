"""The results of a run: the table, the install commands, the JSON report and the index."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from torchwheel.claims import Claims
from torchwheel.files import sha256_by_name
from torchwheel.index.build import IndexedWheel, build_index
from torchwheel.index.contents import all_groups
from torchwheel.index.front import pip_command
from torchwheel.index.groups import groups_of
from torchwheel.inspect.wheel import read_wheel
from torchwheel.pipeline import records
from torchwheel.pipeline.records import BuildRecord
from torchwheel.pipeline.run import Run
from torchwheel.pipeline.schedule import Outcome
from torchwheel.smoke.requirements import BUNDLED_FOLDER
from torchwheel.text import WIDTH, detail_lines, size_text, table_rows


def report_table(records: Sequence[BuildRecord], fresh: Sequence[str]) -> str:
    """One row per wheel; its file, archs and tag below, as file names are long.

    The bundled packages follow at the end. `fresh` names the variants that this run built.
    """
    cells = [("variant", "size", "gates", "seconds", "cpu", "smoke")]
    for record in records:
        seconds = f"{record.seconds:.1f}" if record.variant in fresh else "kept"
        cpu = f"{sum(record.cpu_seconds.values()):.0f}" if record.cpu_seconds else "-"
        size, gates = size_text(record.size), f"{record.gates:>2} ok"
        cells.append((record.variant, size, gates, seconds, cpu, record.smoke))
    head, *rows = table_rows("<7 >8 >5 >7 >5 <", cells)
    lines = [head, "-" * WIDTH]
    for record, row in zip(records, rows, strict=True):
        lines.append(row)
        lines += detail_lines("file", record.file)
        if record.archs:
            lines += detail_lines("archs", " ".join(record.archs))
        lines += detail_lines("tag", record.tag_reason)
    bundled = sorted({name for record in records for name in record.bundled})
    return "\n".join([*lines, *(f"with {BUNDLED_FOLDER}/{name}" for name in bundled)])


def report_json(outcomes: Sequence[Outcome]) -> str:
    """Every variant of a run: its record, or the error."""
    rows = [
        {
            "variant": outcome.variant.id,
            "fresh": outcome.fresh,
            "error": outcome.error,
            "record": dataclasses.asdict(outcome.record) if outcome.record else None,
        }
        for outcome in outcomes
    ]
    return json.dumps({"schema": 1, "variants": rows}, indent=1) + "\n"


def install_command(project: str, record: BuildRecord, group: str, index: Path) -> str:
    """The pip command that installs a wheel of the index."""
    parts = (name.split("-") for name in sorted(record.bundled))
    bundled = [f"{name.replace('_', '-')}=={version}" for name, version, *_ in parts]
    wanted = (f"{project}=={record.file.split('-')[1]}", *bundled)
    return pip_command((index / group).resolve().as_uri(), wanted)


def index_wheels(run: Run, index: Path) -> Mapping[str, tuple[str, ...]]:
    """Replace `index`; returns the groups of each variant in it.

    It leaves out wheels that were tried with other bundled packages than the present ones.
    """
    tried_with = sha256_by_name(run.bundled)
    offered: list[tuple[BuildRecord, Claims]] = []
    for record in records.all_records(run.dist):
        claims = read_wheel(run.dist / record.file).claims
        if claims is not None and record.bundled == tried_with:
            offered.append((record, claims))
    of_each = groups_of([claims for _, claims in offered])
    groups = {record.variant: own for (record, _), own in zip(offered, of_each, strict=True)}
    paths = [(run.dist / record.file, groups[record.variant]) for record, _ in offered]
    paths += [(path, all_groups(groups.values())) for path in run.bundled]
    build_index([IndexedWheel(path, own) for path, own in paths], index)
    return groups
