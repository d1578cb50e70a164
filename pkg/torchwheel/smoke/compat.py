"""Runs the smoke tests of one wheel with every torch that it claims."""

import dataclasses
import json
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from torchwheel import files
from torchwheel.console import Progress
from torchwheel.errors import TorchwheelError, UsageError
from torchwheel.inspect.wheel import read_wheel
from torchwheel.smoke.environment import default_torch
from torchwheel.smoke.record import Outcome, SmokeRecord
from torchwheel.smoke.requirements import bundled_with
from torchwheel.smoke.run import smoke
from torchwheel.text import table_rows


@dataclasses.dataclass(frozen=True)
class CompatRow:
    """One torch release: the record of its run, or the error that prevented it."""

    torch: str
    record: SmokeRecord | None = None
    error: str | None = None

    @property
    def ok(self) -> bool:
        """Whether the wheel worked with this torch."""
        return self.record is not None and self.record.ok


def compat(
    wheel: Path,
    releases: Sequence[str],
    *,
    tests: Path,
    requires: Sequence[str],
    record: Path,
    progress: Progress,
) -> tuple[CompatRow, ...]:
    """Try the wheel with each torch of its range, each in a clean environment.

    Args:
        wheel: the file.
        releases: torch releases, e.g. "2.11.0"; those outside the wheel's range are left out.
        tests: folder of the smoke tests.
        requires: requirements of the tests besides torch.
        record: file for the JSON record of all runs.
        progress: where to report.
    """
    facts = read_wheel(wheel)
    fitting = [release for release in releases if default_torch(facts, release)]
    if not fitting:
        raise UsageError(f"{wheel.name} goes with none of torch {', '.join(releases)}")
    rows = tuple(_try_release(wheel, torch, tests, requires, progress) for torch in fitting)
    files.write_text(record, dump_compat(wheel, rows))
    return rows


def _try_release(
    wheel: Path, torch: str, tests: Path, requires: Sequence[str], progress: Progress
) -> CompatRow:
    # A cache of its own: five torches with CUDA would be 25 GB.
    with tempfile.TemporaryDirectory(prefix="torchwheel-compat-") as folder:
        try:
            smoke_record = smoke(
                wheel,
                tests=tests,
                torch=torch,
                requires=requires,
                bundled=bundled_with(wheel),
                here=False,
                record=Path(folder) / "record.json",
                junit=None,
                cache=Path(folder),
                progress=progress,
            )
        except TorchwheelError as error:
            return CompatRow(torch, error=str(error))
    progress.say(f"torch {torch}: {smoke_record.verdict}")
    return CompatRow(torch, smoke_record)


def dump_compat(wheel: Path, rows: Sequence[CompatRow]) -> str:
    """All runs as JSON."""
    entries = [dataclasses.asdict(row) for row in rows]
    head = {"schema": 1, "wheel": wheel.name, "sha256": files.sha256(wheel)}
    return json.dumps({**head, "torch": entries}, indent=1) + "\n"


def compat_text(rows: Sequence[CompatRow]) -> str:
    """A table with a row for each torch."""
    outcomes: tuple[Outcome, ...] = ("passed", "skipped", "failed")
    cells: list[tuple[str, ...]] = [("torch", "Python", *outcomes, "verdict")]
    for row in rows:
        if row.record is None:
            cells.append((row.torch, str(row.error)))
            continue
        counts = Counter(test.outcome for test in row.record.tests)
        numbers = (str(counts[outcome]) for outcome in outcomes)
        machine, verdict = row.record.machine, row.record.why or row.record.verdict
        cells.append((machine.torch, machine.python, *numbers, verdict))
    return "\n".join(table_rows("<14 <8 >6 >7 >6 <", cells)) + "\n"
