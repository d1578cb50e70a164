"""A test function of which no case ran is refused, unless the matrix admits the reason."""

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from release_artifacts import CPU, H200

from torchwheel.json_files import read_json
from torchwheel.matrix.load import load
from torchwheel.release.rules import every_test_ran
from torchwheel.smoke.record import (
    SCHEMA,
    MachineRecord,
    SmokeRecord,
    TestReport,
    TestResult,
    summarize,
)

ROOT = Path(__file__).parents[3]
RECORDS = sorted(
    path
    for path in (ROOT / "docs" / "records").glob("smoke-*.json")
    if json.loads(path.read_text())["schema"] == SCHEMA
)
OURS = load(ROOT / "matrix.yaml").smoke.skips


def lines(record: SmokeRecord, skips: tuple[str, ...]) -> list[str]:
    sources = SimpleNamespace(matrix=SimpleNamespace(smoke=SimpleNamespace(skips=skips)))
    return list(every_test_ran(sources, SimpleNamespace(smokes=(record,))))  # type: ignore[arg-type]


def record_of(tests: TestReport, machine: MachineRecord = H200) -> SmokeRecord:
    return SmokeRecord("a.whl", "ab", 9, "", machine, (), tests, "cd", {}, "passed")


def skipped(reason: str, name: str = "test_x.py::test_a") -> TestResult:
    return TestResult(name, "skipped", 0.0, reason)


RAN = TestResult("test_x.py::test_b", "passed", 0.1)


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_our_records_are_admitted(path):
    """Those of wheels that passed, and of two that failed; they have reasons for each run alone."""
    assert lines(read_json(path, SmokeRecord, schema=SCHEMA), OURS) == []


def test_our_records_are_not_admitted_without_their_reasons():
    refused = [
        path for path in RECORDS if lines(read_json(path, SmokeRecord, schema=SCHEMA), ("none",))
    ]
    assert len(refused) > 20


@pytest.mark.parametrize("pattern", ["needs 3 tools", "needs * tools", "*tools"])
def test_a_reason_that_the_matrix_lists(pattern):
    record = record_of(summarize((skipped("needs 3 tools"), RAN)))
    assert lines(record, (pattern,)) == []
    (line,) = lines(record, ("needs 3 tool", "tools"))
    assert line.startswith('all cases of test_x.py::test_a were skipped: "needs 3 tools"; ')


def test_a_function_of_which_a_case_ran():
    cases = (
        skipped("flaky", "test_x.py::test_a[1]"),
        TestResult("test_x.py::test_a[2]", "passed", 0),
    )
    assert lines(record_of(summarize(cases)), ()) == []


def test_one_reason_of_several_is_not_admitted():
    cases = [skipped(reason, f"test_x.py::test_a[{reason}]") for reason in ("good", "bad")]
    (line,) = lines(record_of(summarize((*cases, RAN))), ("good",))
    assert 'were skipped: "bad"' in line


def test_admitted_skips_of_others_do_not_help():
    """Of another function 50 cases were skipped for a reason that is admitted, and one ran."""
    other = [skipped("good", f"test_x.py::test_b[{number}]") for number in range(50)]
    (line,) = lines(record_of(summarize((*other, RAN, skipped("flaky")))), ("good",))
    assert line.startswith('all cases of test_x.py::test_a were skipped: "flaky"')


@pytest.mark.parametrize("reason", ["no GPU that torch can use", "needs CUDA", "ROCm is absent"])
def test_a_reason_that_speaks_of_a_gpu_is_admitted_where_there_is_none(reason):
    tests = summarize((skipped(reason), RAN))
    assert lines(record_of(tests, CPU), ()) == []
    assert len(lines(record_of(tests), ())) == 1


def test_others_are_counted():
    tests = summarize([skipped("bad", f"test_x.py::test_{name}") for name in "acd"])
    (line,) = lines(record_of(tests), ())
    assert 'test_x.py::test_a were skipped, and so 2 other test functions: "bad"; ' in line


def test_a_file_that_was_skipped_whole():
    (line,) = lines(record_of(summarize((skipped("flaky", "test_y.py"), RAN))), ())
    assert line.startswith('all cases of test_y.py were skipped: "flaky"')


def test_an_older_record_names_no_function():
    """It has the reasons of all skips: those that are admitted must be enough."""
    for reason, refused in (("flaky", True), ("good", False)):
        tests = dataclasses.replace(summarize((skipped(reason), RAN)), unrun={})
        assert bool(lines(record_of(tests), ("good",))) is refused


def test_a_record_that_leaves_out_a_function():
    tests = summarize((skipped("good"), skipped("flaky", "test_x.py::test_c"), RAN))
    tests = dataclasses.replace(tests, unrun={"test_x.py::test_a": ("good",)})
    (line,) = lines(record_of(tests), ("good",))
    assert line.startswith('all cases of test_x.py::test_c were skipped: ""')
