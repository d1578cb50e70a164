"""What ends a run: a table and the install commands, 80 columns wide, and the same as JSON."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

from torchwheel.pipeline.record import Record
from torchwheel.pipeline.schedule import Outcome
from torchwheel.smoke.companions import FOLDER
from torchwheel.table import WIDTH, below, size_text


def table(records: Sequence[Record], fresh: Sequence[str]) -> str:
    """One row per wheel, with its file, archs and tag below, since file names are long.

    At the end is what goes with them all.
    """
    width = max([7, *(len(record.variant) for record in records)])
    lines = [
        f"{'variant':<{width}}  {'size':>8}  {'gates':>5}  {'seconds':>7}  {'cpu':>5}  smoke",
        "-" * WIDTH,
    ]
    for record in records:
        seconds = f"{record.seconds:.1f}" if record.variant in fresh else "kept"
        cpu = f"{sum(record.cpu_seconds.values()):.0f}" if record.cpu_seconds else "-"
        lines.append(
            f"{record.variant:<{width}}  {size_text(record.size):>8}  "
            f"{record.gates:>2} ok  {seconds:>7}  {cpu:>5}  {record.smoke}"
        )
        lines += below("file", record.file)
        if record.archs:
            lines += below("archs", " ".join(record.archs))
        lines += below("tag", record.tag_reason)
    companions = sorted({name for record in records for name in record.companions})
    return "\n".join([*lines, *(f"with {FOLDER}/{name}" for name in companions)])


def dumps(outcomes: Sequence[Outcome]) -> str:
    """Every variant of a run: its record, or why it failed."""
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


def install_command(project: str, record: Record, group: str, index: Path) -> str:
    """The exact pip command for a wheel of the index."""
    version = record.file.split("-")[1]
    return (
        f'pip install --extra-index-url {(index / group).resolve().as_uri()} "{project}=={version}"'
    )
