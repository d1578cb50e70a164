"""The record of a run in a container, of the files that it leaves."""

import dataclasses
import hashlib
import json
import os

import pytest

from torchwheel.smoke.results import read_report, record_from_files
from torchwheel.smoke.smoke_record import MachineRecord
from torchwheel_runtime.errors import TorchwheelError

MACHINE = dataclasses.asdict(
    MachineRecord("3.11.2", "linux_x86_64", "2.31", "2.13.0", None, None, None)
)
JUNIT = (
    "<testsuites><testsuite>"
    '<testcase classname="t" name="a" time="0.1"/>{}'
    "</testsuite></testsuites>"
)
PASSED = JUNIT.format("")
FAILED = '<testcase classname="t" name="b"><failure message="assert 1 == 2"/></testcase>'


def probed(site, file, error=None):
    facts = {
        "machine": MACHINE,
        "site": str(site),
        "imported": [{"name": "ext", "file": str(file), "error": error}],
    }
    return json.dumps(facts)


@pytest.fixture
def left(tmp_path):
    """What a container leaves: the wheel, the probe's output, pytest's report."""
    wheel = tmp_path / "ext-1-py3-none-any.whl"
    wheel.write_bytes(b"wheel")
    helper = tmp_path / "helper-1-py3-none-any.whl"
    helper.write_bytes(b"helper")

    def write(output, report=PASSED):
        (tmp_path / "probe.json").write_text(output)
        (tmp_path / "junit.xml").write_text(report)
        return record_from_files(
            wheel, [helper], tmp_path / "probe.json", tmp_path / "junit.xml", "ab", 0
        )

    return write


def test_a_good_run_is_recorded(left, tmp_path):
    record = left(probed(tmp_path, tmp_path / "ext" / "__init__.py"))
    assert record.verdict == "passed, not run on a GPU"
    assert record.imported[0].file == "ext/__init__.py"
    assert record.size == 5
    assert record.bundled == {"helper-1-py3-none-any.whl": hashlib.sha256(b"helper").hexdigest()}


def test_a_package_of_the_source_tree_is_not_the_wheel(left, tmp_path):
    record = left(probed(tmp_path / "site", tmp_path / "project" / "ext" / "__init__.py"))
    assert record.verdict == "failed"
    assert "not from the installed wheel" in record.why


def test_a_failed_test_fails_the_record_whatever_the_status(left, tmp_path):
    record = left(probed(tmp_path, tmp_path / "ext" / "__init__.py"), JUNIT.format(FAILED))
    assert record.why == "1 of 2 tests failed, first t::b"


def test_a_wheel_without_a_package_fails(left, tmp_path):
    facts = {"machine": MACHINE, "site": str(tmp_path), "imported": []}
    assert left(json.dumps(facts)).verdict == "failed"


@pytest.mark.parametrize("output", ["", "no json", "{}", '{"machine": {}}'])
def test_no_report_is_one_line(left, output):
    with pytest.raises(TorchwheelError, match=r"ext-1-py3-none-any\.whl: its tests left no report"):
        left(output)


@pytest.mark.parametrize("report", ["fifo", "/dev/zero", "folder", "none"])
def test_a_report_that_is_no_file_is_one_line(tmp_path, report):
    path = tmp_path / "junit.xml"
    if report == "fifo":
        os.mkfifo(path)
    elif report == "folder":
        path.mkdir()
    elif report == "/dev/zero":
        path.symlink_to(report)
    with pytest.raises(OSError, match=r"junit\.xml"):
        read_report(path)
