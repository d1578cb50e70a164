"""What ends a run: a table and the install commands, 80 columns wide, and the same as JSON."""

import dataclasses
import json
import textwrap
from collections.abc import Sequence
from pathlib import Path

from torchwheel.pipeline.record import Record
from torchwheel.pipeline.schedule import Outcome

_WIDTH = 80


def size_text(size: int) -> str:
    """A size a person reads: KiB below one MiB."""
    return f"{size / 1024:.0f} KiB" if size < 1 << 20 else f"{size / (1 << 20):.1f} MiB"


def table(records: Sequence[Record], fresh: Sequence[str]) -> str:
    """One row per wheel, with its file, archs and tag below, since file names are long."""
    width = max([7, *(len(record.variant) for record in records)])
    lines = [
        f"{'variant':<{width}}  {'size':>8}  {'gates':>5}  {'seconds':>7}  {'cpu':>5}  smoke",
        "-" * _WIDTH,
    ]
    for record in records:
        seconds = f"{record.seconds:.1f}" if record.variant in fresh else "kept"
        cpu = f"{sum(record.cpu_seconds.values()):.0f}" if record.cpu_seconds else "-"
        lines.append(
            f"{record.variant:<{width}}  {size_text(record.size):>8}  "
            f"{record.gates:>2} ok  {seconds:>7}  {cpu:>5}  {record.smoke}"
        )
        lines += _below("file", record.file)
        if record.archs:
            lines += _below("archs", " ".join(record.archs))
        lines += _below("tag", record.tag_reason)
    return "\n".join(lines)


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


def _below(name: str, text: str) -> list[str]:
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=f"  {name:<6}",
        subsequent_indent=" " * 8,
        break_on_hyphens=False,
        break_long_words=False,
    )


def install_command(project: str, record: Record, group: str, index: Path) -> str:
    """The exact pip command for a wheel of the index."""
    version = record.file.split("-")[1]
    return (
        f'pip install --extra-index-url {(index / group).resolve().as_uri()} "{project}=={version}"'
    )
