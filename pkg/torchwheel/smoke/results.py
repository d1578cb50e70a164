"""The results of a smoke run: pytest's JUnit file and the probe's output, as a record."""

import dataclasses
import datetime
import json
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torchwheel import files
from torchwheel.errors import TorchwheelError
from torchwheel.smoke.record import (
    GpuRecord,
    Imported,
    MachineRecord,
    Outcome,
    SmokeRecord,
    TestResult,
    judge_smoke,
)


def pytest_arguments(report: Path, *tests: str) -> list[str]:
    """What Python is called with to run `tests` and write the file `report`."""
    return ["-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *tests]


def select_tests(folder: str, files: Sequence[str]) -> list[str]:
    """`files` of the folder of tests, or the whole folder where none is named."""
    return [f"{folder}/{name}" for name in files] or [folder]


def parse_junit(text: str) -> tuple[TestResult, ...]:
    """Results in the order they ran; collection errors count as failed tests."""
    try:
        root = ET.fromstring(text)  # noqa: S314 - written by the pytest we started
    except (ET.ParseError, ValueError) as error:
        raise TorchwheelError(f"pytest's JUnit file is not XML: {error}") from error
    return tuple(_result(case) for case in root.iter("testcase"))


def _result(case: ET.Element) -> TestResult:
    name = "::".join(filter(None, (case.get("classname"), case.get("name", ""))))
    try:
        seconds = float(case.get("time", "0"))
    except ValueError:
        seconds = 0.0
    outcome: Outcome = "passed"
    reason: str | None = None
    for child in case:
        if child.tag in ("failure", "error", "skipped"):
            outcome = "skipped" if child.tag == "skipped" else "failed"
            reason = " ".join((child.get("message") or child.text or child.tag).split())
            if outcome == "failed":
                break
    return TestResult(name, outcome, round(seconds, 3), reason)


def read_probe(output: str, site: Path | None = None) -> tuple[MachineRecord, tuple[Imported, ...]]:
    """What probe.py printed.

    Args:
        output: its output; the facts are the last line.
        site: the folder the packages must come from; the interpreter's own site-packages if none.

    Raises:
        ValueError, LookupError, TypeError: it printed no facts.
    """
    facts = json.loads(output.splitlines()[-1])
    data = facts["machine"]
    machine = MachineRecord(**{**data, "gpu": GpuRecord(**data["gpu"]) if data["gpu"] else None})
    place = site or Path(facts["site"])
    return machine, tuple(_in_site(entry, place) for entry in facts["imported"])


def record_of(
    wheel: Path,
    bundled: Iterable[Path],
    machine: MachineRecord,
    imported: tuple[Imported, ...],
    tests: tuple[TestResult, ...],
    status: int,
) -> SmokeRecord:
    """The record of a run that ended now; `status` is pytest's exit status."""
    verdict, why = judge_smoke(machine, imported, tests, status)
    return SmokeRecord(
        wheel=wheel.name,
        sha256=files.sha256(wheel),
        size=wheel.stat().st_size,
        date=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        machine=machine,
        imported=imported,
        tests=tests,
        verdict=verdict,
        why=why,
        bundled=files.sha256_by_name(bundled),
    )


def record_from_files(
    wheel: Path, bundled: Iterable[Path], probe: Path, report: Path, status: int
) -> SmokeRecord:
    """The record of a run in a container, from the probe's output and pytest's JUnit file."""
    try:
        machine, imported = read_probe(probe.read_text(encoding="utf-8"))
        tests = parse_junit(report.read_text(encoding="utf-8"))
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise TorchwheelError(f"{wheel.name}: its tests left no report: {error}") from error
    return record_of(wheel, bundled, machine, imported or (_nothing(),), tests, status)


def _nothing() -> Imported:
    return Imported("the wheel's packages", None, "there is none to import")


def _in_site(entry: Mapping[str, Any], site: Path) -> Imported:
    found = Imported(**entry)
    if found.error or found.file is None:
        return dataclasses.replace(found, error=found.error or "it has no file")
    path = Path(found.file).resolve()
    if not path.is_relative_to(site.resolve()):
        return dataclasses.replace(found, error=f"came from {path}, not from the installed wheel")
    return dataclasses.replace(found, file=path.relative_to(site.resolve()).as_posix())
