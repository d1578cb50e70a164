"""Which skipped tests a release admits."""

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from release_artifacts import CPU, H200

from torchwheel.matrix.load import load
from torchwheel.release import rules
from torchwheel.release.rules import every_test_ran, skips_allowed
from torchwheel.smoke.smoke_record import (
    SCHEMA,
    MachineRecord,
    SmokeRecord,
    TestReport,
    TestResult,
    summarize,
)
from torchwheel_runtime.json_files import read_json

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


NAME = "test_x.py::test_a"


def skipped(reason: str, name: str = NAME) -> TestResult:
    return TestResult(name, "skipped", 0.0, reason)


RAN = TestResult("test_x.py::test_b", "passed", 0.1)


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_our_records_are_admitted(path):
    """Those of wheels that passed, and of two that failed; they have reasons for each run alone.

    On a GPU no test was skipped for want of one: for a second one, memory, a type, a rule.
    """
    record = read_json(path, SmokeRecord, schema=SCHEMA)
    assert lines(record, OURS) == []
    assert list(skips_allowed(None, SimpleNamespace(smokes=(record,)))) == []


def test_our_records_are_not_admitted_without_their_reasons():
    refused = [
        path for path in RECORDS if lines(read_json(path, SmokeRecord, schema=SCHEMA), ("none",))
    ]
    assert len(refused) > len(RECORDS) // 2


BAD, GOOD = skipped("bad"), skipped("good")
TOOLS = skipped("needs 3 tools")
UNRUN = {
    "a pattern": ((TOOLS, RAN), ("needs 3 tools",), None),
    "a pattern within": ((TOOLS, RAN), ("needs * tools",), None),
    "a pattern at the end": ((TOOLS, RAN), ("*tools",), None),
    "two patterns for less": (
        (TOOLS, RAN),
        ("needs 3 tool", "tools"),
        'test_x.py::test_a were skipped: "needs 3 tools"; ',
    ),
    "a case ran": (
        (skipped("bad", f"{NAME}[1]"), TestResult(f"{NAME}[2]", "passed", 0)),
        (),
        None,
    ),
    "one reason of several is not admitted": (
        (skipped("good", f"{NAME}[1]"), skipped("bad", f"{NAME}[2]"), RAN),
        ("good",),
        'test_x.py::test_a were skipped: "bad"',
    ),
    "50 cases of another, of which one ran, were skipped for a good reason": (
        (*(skipped("good", f"test_x.py::test_b[{n}]") for n in range(50)), RAN, BAD),
        ("good",),
        'test_x.py::test_a were skipped: "bad"',
    ),
    "others are counted": (
        [skipped("bad", f"test_x.py::test_{name}") for name in "acd"],
        (),
        'test_x.py::test_a were skipped, and so 2 other test functions: "bad"; ',
    ),
    "a file": (
        (skipped("bad", "test_y.py"), RAN),
        (),
        'test_y.py were skipped: "bad"',
    ),
}


@pytest.mark.parametrize(("results", "admitted", "says"), UNRUN.values(), ids=UNRUN)
def test_a_function_of_which_no_case_ran(results, admitted, says):
    found = lines(record_of(summarize(results)), admitted)
    assert [line.startswith(f"all cases of {says}") for line in found] == [True] * bool(says)


@pytest.mark.parametrize("reason", ["no GPU that torch can use", "needs CUDA", "ROCm is absent"])
def test_a_reason_that_speaks_of_a_gpu_is_admitted_where_there_is_none(reason):
    tests = summarize((skipped(reason), RAN))
    assert lines(record_of(tests, CPU), ()) == []
    assert len(lines(record_of(tests), ())) == 1


def test_an_older_record_names_no_function():
    """It has the reasons of all skips: those that are admitted must be enough."""
    for reason, is_refused in (("flaky", True), ("good", False)):
        tests = dataclasses.replace(summarize((skipped(reason), RAN)), unrun={})
        assert bool(lines(record_of(tests), ("good",))) is is_refused


def test_a_record_that_leaves_out_a_function():
    tests = summarize((skipped("good"), skipped("flaky", "test_x.py::test_c"), RAN))
    tests = dataclasses.replace(tests, unrun={"test_x.py::test_a": ("good",)})
    (line,) = lines(record_of(tests), ("good",))
    assert line.startswith('all cases of test_x.py::test_c were skipped: ""')


@pytest.mark.parametrize(
    ("absent", "reasons"),
    [
        (True, ["no GPU", "Requires CUDA", "CUDA is not available", "needs a GPU"]),
        (False, ["no GPU memory free", "only one GPU", "needs two GPUs"]),
        (False, ["this GPU has no clusters", "no CUDA graph of it"]),
    ],
)
def test_a_reason_that_says_there_is_no_gpu(absent, reasons):
    assert [bool(rules._NO_GPU.search(one)) for one in reasons] == [absent] * len(reasons)
