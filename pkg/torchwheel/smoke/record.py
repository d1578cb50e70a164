"""The record of a smoke run: its wheel, machine, tests and verdict."""

import dataclasses
import json
from typing import Literal

SCHEMA = 1

Outcome = Literal["passed", "failed", "skipped"]
Verdict = Literal["passed", "failed", "passed, not run on a GPU"]


@dataclasses.dataclass(frozen=True)
class TestResult:
    """One test. `reason` says why it was skipped or how it failed."""

    __test__ = False  # pytest: this is no test class

    name: str
    outcome: Outcome
    seconds: float
    reason: str | None = None


@dataclasses.dataclass(frozen=True)
class GpuRecord:
    """A GPU as torch sees it; `arch` is e.g. "9.0" or "gfx942"."""

    name: str
    arch: str
    driver: str | None


@dataclasses.dataclass(frozen=True)
class ImportRecord:
    """A package of the wheel: the file it was imported from, in the environment, or the error."""

    name: str
    file: str | None
    error: str | None = None


@dataclasses.dataclass(frozen=True)
class MachineRecord:
    """The machine that the wheel ran on."""

    python: str
    platform: str
    glibc: str | None
    torch: str
    cuda: str | None
    hip: str | None
    gpu: GpuRecord | None


@dataclasses.dataclass(frozen=True)
class SmokeRecord:
    """One smoke run; `verdict` follows from the rest."""

    wheel: str
    sha256: str
    size: int
    date: str
    machine: MachineRecord
    imported: tuple[ImportRecord, ...]
    tests: tuple[TestResult, ...]
    verdict: Verdict
    why: str | None = None
    """Of a failed run: the first fact that made it fail."""
    bundled: dict[str, str] = dataclasses.field(default_factory=dict)
    """Hex SHA-256 of the wheels that were installed with it, by their names."""

    @property
    def ok(self) -> bool:
        """Whether this run allows the wheel to be published."""
        return self.verdict != "failed"


def judge_smoke(
    machine: MachineRecord,
    imported: tuple[ImportRecord, ...],
    tests: tuple[TestResult, ...],
    status: int,
) -> tuple[Verdict, str | None]:
    """The verdict and, if it is "failed", why. `status` is pytest's exit status."""
    if why := _failure(imported, tests, status):
        return "failed", why
    return ("passed" if machine.gpu else "passed, not run on a GPU"), None


def _failure(
    imported: tuple[ImportRecord, ...], tests: tuple[TestResult, ...], status: int
) -> str | None:
    for package in imported:
        if package.error:
            return f"import {package.name}: {package.error}"
    failed = [test for test in tests if test.outcome == "failed"]
    if failed:
        return f"{len(failed)} of {len(tests)} tests failed, first {failed[0].name}"
    if not tests:
        return f"no test was collected (pytest exit status {status})"
    if status != 0:
        return f"pytest exit status {status}"
    if all(test.outcome == "skipped" for test in tests):
        return f"none of {len(tests)} tests ran: {tests[0].name} skipped: {tests[0].reason}"
    return None


def dump_smoke(record: SmokeRecord) -> str:
    """JSON in a fixed order."""
    return json.dumps({"schema": SCHEMA, **dataclasses.asdict(record)}, indent=1) + "\n"


def record_text(record: SmokeRecord) -> str:
    """A few lines for a person."""
    counts = {
        outcome: sum(test.outcome == outcome for test in record.tests)
        for outcome in ("passed", "failed", "skipped")
    }
    gpu = record.machine.gpu
    lines = [
        f"{record.wheel}: {record.verdict}" + (f": {record.why}" if record.why else ""),
        f"torch {record.machine.torch}, Python {record.machine.python}, "
        + (f"{gpu.name} ({gpu.arch}), driver {gpu.driver}" if gpu else "no GPU"),
        ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count) or "no tests",
        *sorted({f"skipped: {test.reason}" for test in record.tests if test.outcome == "skipped"}),
    ]
    return "\n".join(lines) + "\n"
