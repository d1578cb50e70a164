"""Runs the smoke tests of one wheel with every torch that it claims, in several Pythons."""

import dataclasses
import json
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from torchwheel.inspect.wheel import read_wheel
from torchwheel.interpreters import Interpreter
from torchwheel.smoke.requirements import bundled_with
from torchwheel.smoke.smoke_record import Outcome, SmokeRecord
from torchwheel.smoke.testing import Trial, smoke
from torchwheel.smoke.trial_environment import default_torch
from torchwheel_runtime import files
from torchwheel_runtime.arch.releases import torch_releases
from torchwheel_runtime.console import Progress
from torchwheel_runtime.errors import TorchwheelError, UsageError
from torchwheel_runtime.text import join_names, table_rows
from torchwheel_runtime.versions import minor_version

PYTHONS_EACH = 2
"""Pythons that each torch is tried with, if so many are given."""


@dataclasses.dataclass(frozen=True)
class CompatRow:
    """One torch release in one Python: the record of its run, or the error that prevented it."""

    torch: str
    python: str
    record: SmokeRecord | None = None
    error: str | None = None

    @property
    def ok(self) -> bool:
        """Whether the wheel worked with this torch."""
        return self.record is not None and self.record.ok


def pairings(
    releases: Sequence[str],
    pythons: Sequence[Interpreter],
    published: Mapping[str, Sequence[str]],
) -> tuple[tuple[str, Interpreter], ...]:
    """The torch releases and the Pythons to try together.

    Each torch is tried with `PYTHONS_EACH` of the Pythons that it was published for: those that
    were tried least so far. All are tried once before any is tried again.

    Args:
        releases: torch releases, e.g. "2.11.0".
        pythons: the Pythons of this machine.
        published: by torch minor, the minors of Python; a torch that is not there has them all.
    """
    tried: Counter[str] = Counter()
    pairs: list[tuple[str, Interpreter]] = []
    for _ in range(PYTHONS_EACH):
        for release in releases:
            minors = published.get(minor_version(release))
            fitting = [
                python
                for python in pythons
                if (minors is None or python.minor in minors) and (release, python) not in pairs
            ]
            if fitting:
                python = min(fitting, key=lambda one: tried[one.version])
                tried[python.version] += 1
                pairs.append((release, python))
    return tuple(pairs)


def compat(
    wheel: Path,
    releases: Sequence[str],
    trial: Trial,
    *,
    record: Path,
    progress: Progress,
    pythons: Sequence[Interpreter],
    cache: Path | None = None,
) -> tuple[CompatRow, ...]:
    """Try the wheel with each torch of its range, each in a clean environment.

    `releases` outside the range are left out. `record` is written after each run. Without a `cache`
    each environment is removed after its run. The other arguments are those of `smoke`.
    """
    facts = read_wheel(wheel)
    fitting = [release for release in releases if default_torch(facts, release)]
    if not fitting:
        raise UsageError(f"{wheel.name} goes with none of torch {join_names(releases)}")
    published = {minor: torch.pythons for minor, torch in torch_releases().items()}
    pairs = pairings(fitting, pythons, published)
    if not pairs:
        found = join_names(python.version for python in pythons)
        raise UsageError(
            f"torch {join_names(fitting)}: not published for Python {found}; name another --python"
        )
    rows: tuple[CompatRow, ...] = ()
    names = [f"torch {release}, Python {python.version}" for release, python in pairs]
    progress.plan({(name,): None for name in names})
    for name, (release, python) in zip(names, pairs, strict=True):
        # Else a cache of its own: five torches with CUDA would be 25 GB.
        scratch = tempfile.TemporaryDirectory(prefix="torchwheel-compat-")
        with progress.task(name) as task, scratch as folder:
            try:
                run = smoke(
                    wheel,
                    dataclasses.replace(trial, torch=release),
                    bundled=bundled_with(wheel),
                    record=Path(folder) / "record.json",
                    cache=cache or Path(folder),
                    progress=progress,
                    python=python,
                )
                row, task.result = CompatRow(release, python.version, run), run.verdict
            except TorchwheelError as error:
                row = CompatRow(release, python.version, error=str(error))
                task.result = "not tried"
        rows = (*rows, row)
        files.write_text(record, dump_compat(wheel, rows))
    return rows


def dump_compat(wheel: Path, rows: Sequence[CompatRow]) -> str:
    """All runs as JSON, with their tests counted."""
    entries = [_entry(row) for row in rows]
    head = {
        "schema": 2,
        "wheel": wheel.name,
        "sha256": files.sha256(wheel),
        "size": wheel.stat().st_size,
        "bundled": files.sha256_by_name(bundled_with(wheel)),
    }
    return json.dumps({**head, "runs": entries}, indent=1) + "\n"


def _entry(row: CompatRow) -> dict[str, object]:
    if row.record is None:
        return {"torch": row.torch, "python": row.python, "error": row.error}
    tests = row.record.tests
    return {
        "torch": row.torch,
        "date": row.record.date,
        "machine": dataclasses.asdict(row.record.machine),
        "verdict": row.record.verdict,
        "why": row.record.why,
        "passed": tests.counts.passed,
        "skipped": tests.skipped,
        "failed": tests.failures,
    }


def compat_text(rows: Sequence[CompatRow]) -> str:
    """A table with a row for each torch and Python."""
    outcomes: tuple[Outcome, ...] = ("passed", "skipped", "failed")
    cells: list[tuple[str, ...]] = [("torch", "Python", *outcomes, "verdict")]
    for row in rows:
        if row.record is None:
            cells.append((row.torch, row.python, "", "", "", str(row.error)))
            continue
        counts = row.record.tests.counts
        numbers = map(str, (counts.passed, counts.skipped, counts.failed))
        machine, verdict = row.record.machine, row.record.why or row.record.verdict
        cells.append((machine.torch, machine.python, *numbers, verdict))
    return "\n".join(table_rows("<14 <8 >6 >7 >6 <", cells)) + "\n"
