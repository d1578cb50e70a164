"""Which torch is tried in which Python, and what the record and the table say of each run."""

import dataclasses
import json
import sys
from collections import Counter
from pathlib import Path

import pytest

from torchwheel import interpreters
from torchwheel.inspect.wheel import read_wheel
from torchwheel.interpreters import find_interpreter, running_interpreter
from torchwheel.smoke.compat import CompatRow, compat, compat_text, dump_compat, pairings
from torchwheel.smoke.requirements import requirements
from torchwheel.smoke.smoke_record import (
    ImportRecord,
    MachineRecord,
    SmokeRecord,
    TestResult,
    summarize,
)
from torchwheel.smoke.testing import Trial
from torchwheel_runtime.console import Quiet
from torchwheel_runtime.errors import TorchwheelError, UsageError
from wheelmaker import make_wheel

PYTHONS = [
    dataclasses.replace(
        running_interpreter(),
        path=Path("/usr/bin", f"python3.{minor}"),
        version=f"3.{minor}.1",
        markers={"python_version": f"3.{minor}", "python_full_version": f"3.{minor}.1"},
    )
    for minor in (10, 11, 12, 13)
]
MACHINE = MachineRecord(
    *("3.12.1", "linux_x86_64", "2.36", "2.11.0+cu130"), cuda="13.0", hip=None, gpu=None
)


def try_wheel(tmp_path, releases, pythons, requires=("torch>=2.6",), cache=None):
    """The rows of a wheel that is tried with these releases of torch."""
    return compat(
        make_wheel(tmp_path, requires=requires),
        releases,
        Trial(tmp_path, requires=()),
        record=tmp_path / "record.json",
        progress=Quiet(),
        pythons=pythons,
        cache=cache,
    )


@pytest.mark.parametrize(
    ("releases", "pythons", "requires", "says"),
    [
        (
            *(["2.11.0", "2.12.0"], [running_interpreter()], ["torch==2.6.*"]),
            r"goes with none of torch 2\.11\.0, 2\.12\.0",
        ),
        (
            *(["2.15.0"], PYTHONS[:1], ["torch>=2.6"]),
            r"torch 2\.15\.0: not published for Python 3\.10\.1",
        ),
    ],
    ids=["no torch", "no Python"],
)
def test_a_wheel_that_goes_with_none_is_a_wrong_call(tmp_path, releases, pythons, requires, says):
    with pytest.raises(UsageError, match=says):
        try_wheel(tmp_path, releases, pythons, requires)
    assert not (tmp_path / "record.json").exists()


def test_a_torch_that_cannot_be_had_is_a_row():
    row = CompatRow("2.99.0", "3.12.1", error="cannot install torch==2.99.0")
    assert not row.ok
    assert compat_text([row]).splitlines()[1].split()[:2] == ["2.99.0", "3.12.1"]


def test_each_torch_and_each_python_are_tried_at_least_twice():
    releases = [f"2.{minor}.0" for minor in (6, 7, 8, 9, 10, 11, 13, 15)]
    published = {"2.6": ("3.9", "3.10", "3.11"), "2.15": ("3.11", "3.12", "3.13")}
    pairs = pairings(releases, PYTHONS, published)
    assert Counter(release for release, _ in pairs) == dict.fromkeys(releases, 2)
    assert [release for release, _ in pairs] == releases * 2
    assert len({(release, python.version) for release, python in pairs}) == len(pairs)
    assert min(Counter(python.minor for _, python in pairs).values()) >= 2
    assert {python.minor for release, python in pairs if release == "2.6.0"} == {"3.10", "3.11"}
    assert ("2.15.0", "3.10") not in {(release, python.minor) for release, python in pairs}


def test_one_python_is_tried_once_with_each_torch_it_has():
    pairs = pairings(["2.14.0", "2.15.0"], PYTHONS[:1], {"2.15": ("3.11",)})
    assert pairs == (("2.14.0", PYTHONS[0]),)


def test_the_record_counts_the_tests(tmp_path):
    wheel = make_wheel(tmp_path)
    tests = (
        TestResult("a", "passed", 0.1),
        TestResult("b", "passed", 0.1),
        TestResult("c", "skipped", 0.0, "no GPU"),
        TestResult("d", "failed", 0.1, "assert 1 == 2"),
    )
    imported = (ImportRecord("demo", "demo/__init__.py"),)
    record = SmokeRecord(
        *(wheel.name, "00", 1, "2026-11-24", MACHINE, imported, summarize(tests), "ab", {}),
        *("failed", "1 of 4 tests failed"),
    )
    gone = CompatRow("2.99.0", "3.12.1", error="cannot install it")
    data = json.loads(dump_compat(wheel, [CompatRow("2.11.0", "3.12.1", record), gone]))
    run, missing = data["runs"]
    assert (run["passed"], run["skipped"]) == (2, {"no GPU": 1})
    assert run["failed"] == {"d": "assert 1 == 2"}
    assert run["machine"]["python"] == "3.12.1"
    assert missing == {"torch": "2.99.0", "python": "3.12.1", "error": "cannot install it"}


@pytest.mark.parametrize("kept", [True, False])
def test_environments_are_kept_where_it_is_asked_for(tmp_path, monkeypatch, kept):
    caches = []

    def smoke(wheel, trial, *, cache, **_):
        caches.append(cache)
        assert cache.is_dir()
        raise TorchwheelError("no torch here")

    monkeypatch.setattr("torchwheel.smoke.compat.smoke", smoke)
    (tmp_path / "cache").mkdir()
    cache = tmp_path / "cache" if kept else None
    (row,) = try_wheel(tmp_path, ["2.13.0"], PYTHONS[:1], cache=cache)
    assert row.error == "no torch here"
    assert (caches == [tmp_path / "cache"]) == kept
    assert caches[0].exists() == kept


def test_the_requirements_of_a_wheel_are_those_of_the_python_it_is_for(tmp_path):
    wheel = make_wheel(tmp_path, requires=["old; python_version < '3.12'", "torch"])
    names = [[r.name for r in requirements(read_wheel(wheel), one)] for one in PYTHONS]
    assert names == [["old", "torch"], ["old", "torch"], ["torch"], ["torch"]]


def test_a_python_is_found_by_path_and_asked_for_its_release():
    found = find_interpreter(sys.executable)
    assert found == running_interpreter()


@pytest.mark.parametrize("name", ["3.99", "/nowhere/python"])
def test_a_python_that_is_missing_is_a_wrong_call(name):
    with pytest.raises(UsageError, match=r"^--python \S+: expected a Python .*, found no .*; "):
        find_interpreter(name)


def test_a_program_that_is_no_python_is_a_wrong_call(tmp_path):
    program = tmp_path / "python9"
    program.write_text("#!/bin/sh\necho hello\n")
    program.chmod(0o755)
    with pytest.raises(UsageError, match=r"Python 3\.10 or later, found another program: "):
        find_interpreter(str(program))


@pytest.mark.parametrize("name", [sys.executable, f"3.{sys.version_info.minor}"])
def test_a_python_that_is_too_old_says_which_it_is(monkeypatch, name):
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    monkeypatch.setattr(interpreters, "OLDEST", (3, 99))
    here = ".".join(map(str, sys.version_info[:3]))
    with pytest.raises(UsageError, match=rf"Python 3\.99 or later; this is {here}$"):
        find_interpreter(name)
