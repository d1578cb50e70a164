"""The verdict, the record, the JUnit file; what the environment must hold."""

import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchwheel.errors import TorchwheelError
from torchwheel.inspect.wheel import read_wheel
from torchwheel.smoke import requirements
from torchwheel.smoke import results as results_
from torchwheel.smoke.environment import base_requirements, default_torch
from torchwheel.smoke.record import (
    GpuRecord,
    ImportRecord,
    MachineRecord,
    SmokeRecord,
    TestResult,
    dump_smoke,
    judge_smoke,
    record_text,
)
from wheelmaker import make_wheel

MACHINE = MachineRecord("3.11.7", "linux_x86_64", "2.36", "2.13.0", None, None, None)
GPU = dataclasses.replace(MACHINE, gpu=GpuRecord("NVIDIA H200", "9.0", "580.1"))
GOOD = (ImportRecord("demo", "demo/__init__.py"),)
TESTS = (TestResult("test_a", "passed", 0.1), TestResult("test_b", "skipped", 0.0, "no GPU"))


def test_verdicts_of_a_good_run() -> None:
    assert judge_smoke(GPU, GOOD, TESTS, 0) == ("passed", None)
    assert judge_smoke(MACHINE, GOOD, TESTS, 0) == ("passed, not run on a GPU", None)


@pytest.mark.parametrize(
    ("imported", "tests", "status", "why"),
    [
        (
            GOOD,
            (*TESTS, TestResult("test_c", "failed", 0.0)),
            1,
            "1 of 3 tests failed, first test_c",
        ),
        (GOOD, (), 5, "no test was collected (pytest exit status 5)"),
        (GOOD, (), 0, "no test was collected"),
        (GOOD, TESTS, 3, "pytest exit status 3"),
        (GOOD, TESTS, -11, "pytest exit status -11"),
        (GOOD, TESTS[1:], 0, "none of 1 tests ran: test_b skipped: no GPU"),
        ((*GOOD, ImportRecord("x", None, "OSError: no")), TESTS, 0, "import x: OSError: no"),
    ],
)
def test_verdicts_of_a_bad_run(
    imported: tuple[ImportRecord, ...], tests: tuple[TestResult, ...], status: int, why: str
) -> None:
    verdict, said = judge_smoke(GPU, imported, tests, status)
    assert verdict == "failed"
    assert said is not None
    assert said.startswith(why)


RECORD = SmokeRecord("demo.whl", "ab", 9, "2026-01-01T00:00:00+00:00", GPU, GOOD, TESTS, "passed")


def test_the_record_as_json() -> None:
    data = json.loads(dump_smoke(RECORD))
    assert data["schema"] == 1
    assert data["machine"]["gpu"] == {"name": "NVIDIA H200", "arch": "9.0", "driver": "580.1"}
    assert data["tests"][1] == {
        "name": "test_b", "outcome": "skipped", "seconds": 0.0, "reason": "no GPU"
    }  # fmt: skip
    assert RECORD.ok
    assert not dataclasses.replace(RECORD, verdict="failed").ok


def test_the_record_as_text() -> None:
    assert record_text(RECORD).splitlines() == [
        "demo.whl: passed",
        "torch 2.13.0, Python 3.11.7, NVIDIA H200 (9.0), driver 580.1",
        "1 passed, 1 skipped",
        "skipped: no GPU",
    ]


JUNIT = """<?xml version="1.0"?><testsuites><testsuite>
<testcase classname="smoke.test_x" name="test_ok" time="0.25" />
<testcase classname="smoke.test_x" name="test_bad" time="1"><failure message="assert 1
 == 2">long</failure></testcase>
<testcase classname="smoke.test_x" name="test_skip" time="0"><skipped message="no GPU"/></testcase>
<testcase classname="" name="smoke.test_y" time="x"><error message="collection failure"/></testcase>
<testcase classname="m" name="both" time="0"><skipped message="s"/><error message="e"/></testcase>
</testsuite></testsuites>"""


def test_junit() -> None:
    assert results_.parse_junit(JUNIT) == (
        TestResult("smoke.test_x::test_ok", "passed", 0.25),
        TestResult("smoke.test_x::test_bad", "failed", 1.0, "assert 1 == 2"),
        TestResult("smoke.test_x::test_skip", "skipped", 0.0, "no GPU"),
        TestResult("smoke.test_y", "failed", 0.0, "collection failure"),
        TestResult("m::both", "failed", 0.0, "e"),
    )


@given(st.text())
def test_any_text_is_results_or_an_error(text: str) -> None:
    try:
        results = results_.parse_junit(text)
    except TorchwheelError:
        return
    assert isinstance(results, tuple)


def test_what_the_base_holds(tmp_path: Path) -> None:
    wheel = read_wheel(make_wheel(tmp_path, requires=("torch>=2.6", "x>=1", "y; extra == 'z'")))
    assert base_requirements([wheel], "2.13.0", ["pytest>=8", "numpy"]) == (
        *("numpy", "pytest>=8", "torch==2.13.0", "x>=1"),
    )
    assert base_requirements([wheel], None, []) == ("pytest", "torch>=2.6", "x>=1")


def test_the_base_holds_what_bundled_require_but_not_them(tmp_path: Path) -> None:
    wheel = read_wheel(make_wheel(tmp_path, requires=("torch>=2.6", "helper_one>=1")))
    helper = make_wheel(tmp_path, name="helper_one", requires=("rich>=13", "torch>=2.9"))
    assert base_requirements([wheel, read_wheel(helper)], None, []) == (
        *("pytest", "rich>=13", "torch>=2.6", "torch>=2.9"),
    )


@pytest.mark.parametrize(
    ("asked", "torch"), [("torch>=2.11", "2.13.0"), ("torch==2.6.*", None), ("numpy", "2.13.0")]
)
def test_a_wheel_for_another_torch_gets_the_one_it_asks_for(
    tmp_path: Path, asked: str, torch: str | None
) -> None:
    assert default_torch(read_wheel(make_wheel(tmp_path, requires=[asked])), "2.13.0") == torch


def installed(monkeypatch: pytest.MonkeyPatch, **versions: str) -> None:
    monkeypatch.setattr(requirements, "_installed_version", versions.get)


@pytest.mark.parametrize(
    ("requires", "says"),
    [
        (("torch>=2.99",), "demo-1.0.0-py3-none-any.whl needs torch>=2.99, but torch 2.13.0 is"),
        (("gone",), "demo-1.0.0-py3-none-any.whl needs gone, which is not installed here"),
    ],
)
def test_here_a_requirement_is_not_met(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, requires: tuple[str, ...], says: str
) -> None:
    installed(monkeypatch, torch="2.13.0", pytest="9.0")
    with pytest.raises(TorchwheelError, match=says):
        requirements.check_installed(
            [read_wheel(make_wheel(tmp_path, requires=requires))], ("pytest",)
        )


def test_here_a_bundled_package_counts_as_installed_and_has_needs_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(monkeypatch, torch="2.13.0", pytest="9.0", helper="9")
    wheels = [
        read_wheel(make_wheel(tmp_path, requires=("torch", "helper<2"))),
        read_wheel(make_wheel(tmp_path, name="helper", requires=())),
    ]
    requirements.check_installed(wheels, ("pytest",))
    needy = read_wheel(make_wheel(tmp_path / "needy", name="helper", requires=("gone",)))
    with pytest.raises(TorchwheelError, match=r"^helper-1\.0\.0-py3-none-any\.whl needs gone"):
        requirements.check_installed([wheels[0], needy], ("pytest",))
    old = read_wheel(make_wheel(tmp_path, name="helper", version="2", requires=()))
    with pytest.raises(TorchwheelError, match=r"needs helper<2, but helper 2 is installed here$"):
        requirements.check_installed([wheels[0], old], ("pytest",))


def test_here_a_local_or_later_torch_meets_the_range(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = read_wheel(make_wheel(tmp_path, requires=("torch>=2.11", "x; extra == 'y'")))
    installed(monkeypatch, torch="2.11.0+cu130", pytest="9.0")
    requirements.check_installed([wheel], ("pytest",))


def test_here_without_pytest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, torch="2.13.0")
    with pytest.raises(TorchwheelError, match=r"^smoke needs pytest, which is not installed here$"):
        requirements.check_installed([read_wheel(make_wheel(tmp_path))], ("pytest",))
