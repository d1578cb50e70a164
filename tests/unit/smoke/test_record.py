"""What a smoke test records: imports, results and a verdict."""

import contextlib
import dataclasses
import json
import os
import sys
from pathlib import Path

import pytest

from torchwheel.inspect.wheel import read_wheel
from torchwheel.smoke import requirements
from torchwheel.smoke import results as results_
from torchwheel.smoke.smoke_record import (
    GpuRecord,
    ImportRecord,
    MachineRecord,
    SmokeRecord,
    TestReport,
    TestResult,
    dump_smoke,
    judge_smoke,
    record_text,
    summarize,
)
from torchwheel.smoke.testing import import_names, run_python
from torchwheel.smoke.trial_environment import Environment, base_requirements, default_torch
from torchwheel_runtime.errors import TorchwheelError
from wheelmaker import make_wheel

# The verdict, the record, the JUnit file; what the environment must hold.


MACHINE = MachineRecord("3.11.7", "linux_x86_64", "2.36", "2.13.0", None, None, None)
GPU = dataclasses.replace(MACHINE, gpu=GpuRecord("NVIDIA H200", "9.0", "580.1"))
GOOD = (ImportRecord("demo", "demo/__init__.py"),)
RESULTS = (
    TestResult("test_x.py::test_a[1]", "passed", 0.1),
    TestResult("test_x.py::test_a[2::3]", "passed", 0.2),
    TestResult("sub/test_y.py::TestB::test_b", "skipped", 0.0, "no GPU"),
)
FAILED = TestResult("test_x.py::test_c", "failed", 0.0)
TESTS = summarize(RESULTS)


def test_verdicts_of_a_good_run() -> None:
    assert judge_smoke(GPU, GOOD, TESTS, 0) == ("passed", None)
    assert judge_smoke(MACHINE, GOOD, TESTS, 0) == ("passed, not run on a GPU", None)


@pytest.mark.parametrize(
    ("imported", "tests", "status", "why"),
    [
        (
            GOOD,
            summarize((*RESULTS, FAILED)),
            1,
            "1 of 4 tests failed, first test_x.py::test_c",
        ),
        (GOOD, TestReport(), 5, "no test was collected (pytest exit status 5)"),
        (GOOD, TestReport(), 0, "no test was collected"),
        (GOOD, TESTS, 3, "pytest exit status 3"),
        (GOOD, TESTS, -11, "pytest exit status -11"),
        (GOOD, summarize(RESULTS[2:]), 0, "none of 1 tests ran: skipped: no GPU"),
        ((*GOOD, ImportRecord("x", None, "OSError: no")), TESTS, 0, "import x: OSError: no"),
    ],
)
def test_verdicts_of_a_bad_run(
    imported: tuple[ImportRecord, ...], tests: TestReport, status: int, why: str
) -> None:
    verdict, said = judge_smoke(GPU, imported, tests, status)
    assert verdict == "failed"
    assert said is not None
    assert said.startswith(why)


DATE = "2026-01-01T00:00:00+00:00"
WAYS = {"demo": {"scale": "prebuilt"}}
RECORD = SmokeRecord("demo.whl", "ab", 9, DATE, GPU, GOOD, TESTS, "cd", WAYS, "passed")


def test_the_record_as_json() -> None:
    data = json.loads(dump_smoke(RECORD))
    assert data["schema"] == 2
    assert data["machine"]["gpu"] == {"name": "NVIDIA H200", "arch": "9.0", "driver": "580.1"}
    assert data["tests"] == {
        "files": [
            {
                "name": "test_x.py",
                "seconds": 0.3,
                "functions": {"test_a": {"passed": 2, "failed": 0, "skipped": 0}},
            },
            {
                "name": "sub/test_y.py",
                "seconds": 0.0,
                "functions": {"TestB::test_b": {"passed": 0, "failed": 0, "skipped": 1}},
            },
        ],
        "failures": {},
        "skipped": {"no GPU": 1},
        "unrun": {"sub/test_y.py::TestB::test_b": ["no GPU"]},
    }
    assert (data["sources"], data["operators"]) == ("cd", WAYS)
    assert (data["variables"], data["choices"]) == ({}, {})
    assert RECORD.ok
    assert not dataclasses.replace(RECORD, verdict="failed").ok


def test_the_record_as_text() -> None:
    assert record_text(RECORD).splitlines() == [
        "demo.whl: passed",
        "torch 2.13.0, Python 3.11.7, NVIDIA H200 (9.0), driver 580.1",
        "2 passed, 1 skipped",
        "skipped: no GPU",
    ]
    chosen = dataclasses.replace(
        RECORD,
        variables={"TORCHWHEEL_CACHE": None, "TORCHWHEEL_LIBRARY": "cu124"},
        choices={"demo": ("front end: stable", "GPU 0 (H200, 9.0): cu124"), "other": ()},
    )
    assert record_text(chosen).splitlines()[2:5] == [
        "set: TORCHWHEEL_CACHE, TORCHWHEEL_LIBRARY=cu124",
        "demo: front end: stable",
        "demo: GPU 0 (H200, 9.0): cu124",
    ]


JUNIT = """<?xml version="1.0"?><testsuites><testsuite>
<testcase classname="test_x" name="test_ok" file="test_x.py" time="0.25" />
<testcase classname="sub.test_x.TestB" name="test_bad[1.5]" file="sub/test_x.py" time="1"><failure
 message="assert 1
 == 2">long</failure></testcase>
<testcase classname="" name="test_s" file="test_s.py" time="0"><skipped
 message="no GPU"/></testcase>
<testcase classname="sub" name="test_y" file="sub/test_y.py" time="x"><error
 message="no"/></testcase>
<testcase classname="m" name="both" time="0"><skipped message="s"/><error message="e"/></testcase>
</testsuite></testsuites>"""


def test_junit() -> None:
    assert results_.parse_junit(JUNIT) == (
        TestResult("test_x.py::test_ok", "passed", 0.25),
        TestResult("sub/test_x.py::TestB::test_bad[1.5]", "failed", 1.0, "assert 1 == 2"),
        TestResult("test_s.py", "skipped", 0.0, "no GPU"),
        TestResult("sub/test_y.py", "failed", 0.0, "no"),
        TestResult("m::both", "failed", 0.0, "e"),
    )


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


HERE = {"torch": "2.13.0", "pytest": "9.0"}
PURE = "demo-1.0.0-py3-none-any.whl"
HELPED = {"requires": ("torch", "helper<2")}
HELPER = {"name": "helper", "requires": ()}
INSTALLED = {
    "another torch": (
        *([{"requires": ("torch>=2.99",)}], HERE),
        f"{PURE} needs torch>=2.99, but torch 2.13.0 is",
    ),
    "none of that name": (
        *([{"requires": ("gone",)}], HERE),
        f"{PURE} needs gone, which is not installed here",
    ),
    "a local or later torch meets the range": (
        *([{"requires": ("torch>=2.11", "x; extra == 'y'")}], {**HERE, "torch": "2.11.0+cu130"}),
        None,
    ),
    "without pytest": (
        *([{}], {"torch": "2.13.0"}),
        "^smoke needs pytest, which is not installed here$",
    ),
    "a bundled package counts as installed": ([HELPED, HELPER], {**HERE, "helper": "9"}, None),
    "a bundled package has needs of its own": (
        *([HELPED, {**HELPER, "requires": ("gone",)}], HERE),
        r"^helper-1\.0\.0-py3-none-any\.whl needs gone",
    ),
    "a bundled package of another version": (
        *([HELPED, {**HELPER, "version": "2"}], HERE),
        "needs helper<2, but helper 2 is installed here$",
    ),
}


@pytest.mark.parametrize(("made", "versions", "says"), INSTALLED.values(), ids=INSTALLED)
def test_what_must_be_installed_here(tmp_path, monkeypatch, made, versions, says) -> None:
    monkeypatch.setattr(requirements, "_installed_version", versions.get)
    wheels = [read_wheel(make_wheel(tmp_path, **wheel)) for wheel in made]
    with pytest.raises(TorchwheelError, match=says) if says else contextlib.nullcontext():
        requirements.check_installed(wheels, ("pytest",))


def test_packages_and_modules_at_the_top_are_what_users_import(tmp_path):
    files = {
        "demo_c.cpython-311-x86_64-linux-gnu.so": b"",
        "one.py": b"",
        "package/__init__.py": b"",
        "package/inner/__init__.py": b"",
        "namespace/module.py": b"",
        "demo.libs/libhelp.so.1": b"",
    }
    wheel = make_wheel(tmp_path, files=files)
    assert import_names(read_wheel(wheel)) == ("demo_c", "one", "package")


def test_a_wheel_without_any_is_an_error(tmp_path):
    wheel = make_wheel(tmp_path, files={"demo/data.txt": b"", "readme.txt": b""})
    with pytest.raises(TorchwheelError, match="no package or module to import in it"):
        import_names(read_wheel(wheel))


@pytest.mark.parametrize(
    ("own", "expected"), [({}, "passive"), ({"OMP_WAIT_POLICY": "active"}, "active")]
)
def test_threads_of_torch_wait_without_a_core_unless_the_user_says_otherwise(
    tmp_path, own, expected
):
    env = Environment(Path(sys.executable), {"PATH": os.defpath, **own}, tmp_path)
    done = run_python(env, ["-c", "import os; print(os.environ['OMP_WAIT_POLICY'])"], tmp_path)
    assert done.output.strip() == expected
