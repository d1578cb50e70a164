"""The results of a smoke run: pytest's JUnit file and the probe's output, as a record."""

import dataclasses
import datetime
import os
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Sequence
from pathlib import Path

from torchwheel.smoke.smoke_record import (
    ImportRecord,
    MachineRecord,
    Outcome,
    SmokeRecord,
    TestResult,
    judge_smoke,
    summarize,
)
from torchwheel_runtime import files
from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.json_files import read_json
from torchwheel_runtime.os_errors import explain
from torchwheel_runtime.ownership import open_regular

_MOST_OF_REPORT = 64 << 20


def read_report(path: Path) -> str:
    """The text of a JUnit file. The tests may have left a pipe there, or a file without end.

    Raises:
        OSError: it is no regular file, or cannot be read.
        UnicodeDecodeError: it is not UTF-8.
    """
    with os.fdopen(open_regular(path), "rb") as file:
        return file.read(_MOST_OF_REPORT).decode("utf-8")


def parse_junit(text: str) -> tuple[TestResult, ...]:
    """Results in the order they ran; collection errors count as failed tests."""
    try:
        root = ET.fromstring(text)  # noqa: S314 - written by the pytest we started
    except (ET.ParseError, ValueError) as error:
        raise TorchwheelError(f"pytest's JUnit file is not XML: {error}") from error
    return tuple(_test_result(case) for case in root.iter("testcase"))


def _test_result(case: ET.Element) -> TestResult:
    name = _node_id(case.get("file"), case.get("classname", ""), case.get("name", ""))
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


def _node_id(file: str | None, classname: str, name: str) -> str:
    """The id of a test, "test_x.py::TestB::test_a"; of a file that could not be collected its name.

    pytest names the classes of a test after the path of its file, with dots.
    """
    if not file:
        return "::".join(filter(None, (classname, name)))
    module = file.removesuffix(".py").replace("/", ".")
    if module in (name, f"{classname}.{name}"):
        return file
    classes = classname.removeprefix(module).strip(".").split(".")
    return "::".join(filter(None, (file, *classes, name)))


@dataclasses.dataclass(frozen=True)
class RunFacts:
    """The facts that probe.py writes of a run, beside the results of its tests.

    Attributes:
        machine: where it ran.
        site: site-packages, where the packages are.
        imported: the packages that it imported.
        operators: the way that each operator family of a package ran.
        variables: torchwheel's environment variables.
        choices: by package, what was chosen of a universal wheel's parts.
    """

    machine: MachineRecord
    site: Path
    imported: tuple[ImportRecord, ...]
    operators: dict[str, dict[str, str]] = dataclasses.field(default_factory=dict)
    variables: dict[str, str | None] = dataclasses.field(default_factory=dict)
    choices: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)


def read_probe(facts: Path, site: Path | None = None) -> RunFacts:
    """Read the file of facts that probe.py wrote; packages must come from `site`, or site-packages.

    Raises:
        OSError, MalformedError: there are no facts in it.
    """
    found = read_json(facts, RunFacts)
    folder = site or found.site
    imported = tuple(_check_place(entry, folder) for entry in found.imported)
    return dataclasses.replace(found, imported=imported)


def record_of(
    wheel: Path,
    bundled: Iterable[Path],
    facts: RunFacts,
    results: Sequence[TestResult],
    sources: str,
    status: int,
) -> SmokeRecord:
    """The record of a run that has just ended, with pytest's exit status.

    `sources` is the digest of the folder of its tests; empty if it was imported alone.
    """
    tests = summarize(results)
    verdict, why = judge_smoke(facts.machine, facts.imported, tests, status, tested=bool(sources))
    return SmokeRecord(
        wheel=wheel.name,
        sha256=files.sha256(wheel),
        size=wheel.stat().st_size,
        date=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        machine=facts.machine,
        imported=facts.imported,
        tests=tests,
        sources=sources,
        operators=facts.operators,
        verdict=verdict,
        why=why,
        bundled=files.sha256_by_name(bundled),
        variables=facts.variables,
        choices=facts.choices,
    )


def record_from_files(
    wheel: Path,
    bundled: Iterable[Path],
    probe: Path,
    report: Path | None,
    sources: str,
    status: int,
) -> SmokeRecord:
    """The record of a run in a container, from the probe's output and pytest's JUnit file.

    Without a JUnit file the wheel was imported alone.
    """
    try:
        facts = read_probe(probe)
        tests = parse_junit(read_report(report)) if report else ()
    except (OSError, UnicodeDecodeError, TorchwheelError) as error:
        raise TorchwheelError(
            f"{wheel.name}: its tests left no report: {explain(error)}"
        ) from error
    if not facts.imported:
        nothing = ImportRecord("the wheel's packages", None, "there is none to import")
        facts = dataclasses.replace(facts, imported=(nothing,))
    return record_of(wheel, bundled, facts, tests, sources, status)


def _check_place(entry: ImportRecord, site: Path) -> ImportRecord:
    """An import as the record has it: its file in `site`, or why it is none of the wheel's."""
    name, file = entry.name, entry.file
    if entry.error or file is None:
        return ImportRecord(name, file, entry.error or "it has no file")
    path, site = Path(os.path.realpath(file)), Path(os.path.realpath(site))
    if not path.is_relative_to(site):
        return ImportRecord(name, file, f"came from {path}, not from the installed wheel")
    return ImportRecord(name, path.relative_to(site).as_posix())
