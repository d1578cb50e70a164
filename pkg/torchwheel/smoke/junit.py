"""pytest's JUnit file: how it is had, and the test results in it."""

import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path

from torchwheel.errors import TorchwheelError
from torchwheel.smoke.record import Outcome, TestResult


def pytest_arguments(report: Path, *tests: str) -> list[str]:
    """What Python is called with to run `tests` and write the file `report`."""
    return ["-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *tests]


def chosen(folder: str, files: Sequence[str]) -> list[str]:
    """`files` of the folder of tests, or the whole folder where none is named."""
    return [f"{folder}/{name}" for name in files] or [folder]


def parse(text: str) -> tuple[TestResult, ...]:
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
