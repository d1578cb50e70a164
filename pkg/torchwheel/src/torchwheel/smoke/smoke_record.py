"""The record of a smoke run: its wheel, machine, operators, tests and verdict."""

import dataclasses
import json
from collections import Counter
from collections.abc import Sequence
from typing import Literal

SCHEMA = 2

Outcome = Literal["passed", "failed", "skipped"]
Verdict = Literal["passed", "failed", "passed, not run on a GPU", "imported, not run on a GPU"]


@dataclasses.dataclass(frozen=True)
class TestResult:
    """One test, "test_x.py::test_a[1]". `reason` says why it was skipped or how it failed."""

    __test__ = False  # pytest: this is no test class

    name: str
    outcome: Outcome
    seconds: float
    reason: str | None = None


@dataclasses.dataclass(frozen=True)
class Counts:
    """How many tests had each outcome."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    @property
    def total(self) -> int:
        """How many ran or were skipped."""
        return self.passed + self.failed + self.skipped

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(
            self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped
        )


@dataclasses.dataclass(frozen=True)
class TestFile:
    """The tests of one file: their outcomes by function, "test_a" or "TestB::test_a"."""

    __test__ = False  # pytest: this is no test class

    name: str
    """The path in the folder of the smoke tests."""
    seconds: float
    functions: dict[str, Counts]

    @property
    def counts(self) -> Counts:
        """Of all its functions."""
        return sum(self.functions.values(), Counts())


@dataclasses.dataclass(frozen=True)
class TestReport:
    """What ran, file by file, and why the other tests failed or were skipped."""

    __test__ = False  # pytest: this is no test class

    files: tuple[TestFile, ...] = ()
    failures: dict[str, str | None] = dataclasses.field(default_factory=dict)
    """Why each failed, by the test's name."""
    skipped: dict[str, int] = dataclasses.field(default_factory=dict)
    """How many tests were skipped for each reason."""
    unrun: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    """Why all cases of a function were skipped, by "test_x.py::test_a"."""

    @property
    def counts(self) -> Counts:
        """Of all files."""
        return sum((file.counts for file in self.files), Counts())

    @property
    def skipped_functions(self) -> dict[str, int]:
        """How many cases were skipped of each function of which none ran."""
        return {
            f"{file.name}::{name}" if name else file.name: counts.skipped
            for file in self.files
            for name, counts in file.functions.items()
            if 0 < counts.skipped == counts.total
        }


def summarize(results: Sequence[TestResult]) -> TestReport:
    """The report of single tests, in the order they ran."""
    functions: dict[str, dict[str, Counts]] = {}
    seconds: dict[str, float] = {}
    reasons: dict[str, set[str]] = {}
    ran: set[str] = set()
    for test in results:
        function = test.name.partition("[")[0]
        if test.outcome == "skipped":
            reasons.setdefault(function, set()).add(test.reason or "")
        else:
            ran.add(function)
        file, _, rest = test.name.partition("::")
        seconds[file] = seconds.get(file, 0.0) + test.seconds
        of_file = functions.setdefault(file, {})
        name = rest.partition("[")[0]
        of_file[name] = of_file.get(name, Counts()) + Counts(**{test.outcome: 1})
    return TestReport(
        tuple(TestFile(name, round(seconds[name], 3), of) for name, of in functions.items()),
        {test.name: test.reason for test in results if test.outcome == "failed"},
        dict(Counter(test.reason or "" for test in results if test.outcome == "skipped")),
        {name: tuple(sorted(why)) for name, why in reasons.items() if name not in ran},
    )


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
    """The machine that the wheel ran on; `python` is e.g. "3.13.5", free-threaded "3.13.5t"."""

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
    tests: TestReport
    sources: str
    """Hex SHA-256 of the smoke tests' folder; empty if the packages were imported alone."""
    operators: dict[str, dict[str, str]]
    """By package: the way that each operator family ran, as torchwheel_runtime.runtime says it."""
    verdict: Verdict
    why: str | None = None
    """Of a failed run: the first fact that made it fail."""
    bundled: dict[str, str] = dataclasses.field(default_factory=dict)
    """Hex SHA-256 of the wheels that were installed with it, by their names."""
    variables: dict[str, str | None] = dataclasses.field(default_factory=dict)
    """The TORCHWHEEL_ variables that were set; None for a value that is a folder or an address."""
    choices: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    """By package: the front end of a universal wheel that ran, and the kernel library of each GPU.

    Lines of its status, for a person: no rule of a release reads them. Without a GPU no line names
    a kernel library, and a package with one library has no lines.
    """

    @property
    def ok(self) -> bool:
        """Whether this run allows the wheel to be published."""
        return self.verdict != "failed"


def judge_smoke(
    machine: MachineRecord,
    imported: tuple[ImportRecord, ...],
    tests: TestReport,
    status: int,
    *,
    tested: bool = True,
) -> tuple[Verdict, str | None]:
    """The verdict and, if it is "failed", why.

    `status` is pytest's exit status. A run that is not `tested` imports the packages alone.
    """
    if not tested:
        broken = next((package for package in imported if package.error), None)
        if broken or not imported or status:
            why = f"import {broken.name}: {broken.error}" if broken else f"exit status {status}"
            return "failed", why
        return "imported, not run on a GPU", None
    if failure := _failure(imported, tests, status):
        return "failed", failure
    return ("passed" if machine.gpu else "passed, not run on a GPU"), None


def _failure(imported: tuple[ImportRecord, ...], tests: TestReport, status: int) -> str | None:
    counts = tests.counts
    for package in imported:
        if package.error:
            return f"import {package.name}: {package.error}"
    if counts.failed or tests.failures:
        first = next(iter(tests.failures), "not named")
        return f"{counts.failed} of {counts.total} tests failed, first {first}"
    if not counts.total:
        return f"no test was collected (pytest exit status {status})"
    if status != 0:
        return f"pytest exit status {status}"
    if not counts.passed:
        reason = next(iter(tests.skipped), "for no reason")
        return f"none of {counts.total} tests ran: skipped: {reason}"
    return None


def dump_smoke(record: SmokeRecord) -> str:
    """JSON in a fixed order."""
    return json.dumps({"schema": SCHEMA, **dataclasses.asdict(record)}, indent=1) + "\n"


def record_text(record: SmokeRecord) -> str:
    """A few lines for a person."""
    counts = dataclasses.asdict(record.tests.counts)
    gpu = record.machine.gpu
    variables = [
        name if value is None else f"{name}={value}" for name, value in record.variables.items()
    ]
    lines = [
        f"{record.wheel}: {record.verdict}" + (f": {record.why}" if record.why else ""),
        f"torch {record.machine.torch}, Python {record.machine.python}, "
        + (f"{gpu.name} ({gpu.arch}), driver {gpu.driver}" if gpu else "no GPU"),
        *([f"set: {', '.join(variables)}"] if variables else ()),
        *(f"{package}: {line}" for package, said in record.choices.items() for line in said),
        ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count) or "no tests",
        *sorted(f"skipped: {reason}" for reason in record.tests.skipped),
    ]
    return "\n".join(lines) + "\n"
