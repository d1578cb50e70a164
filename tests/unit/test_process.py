"""Programs are run in one place, and a failure is one line."""

import re
import sys
from pathlib import Path

import pytest

from torchwheel import process
from torchwheel.errors import DiskFullError, TorchwheelError

PACKAGE = Path(process.__file__).parent
# They start a child that outlives a call, is killed as a group or runs without torchwheel.
OTHERS = {
    "doctor/importing.py",
    "image/reaper.py",
    "pipeline/frontend.py",  # raises the error that PEP 517's hooks expect
    "process.py",
    "steps/compiler_cache.py",  # a server that runs beside the build
    "smoke/probe.py",
}


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_no_other_module_starts_programs():
    users = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if re.search(r"^\s*(import|from) subprocess\b", path.read_text(), re.MULTILINE)
    }
    assert users == OTHERS


def test_output_errors_and_status():
    code = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"
    done = process.run(python(code))
    assert (done.status, done.output, done.errors) == (3, "out\n", "err\n")
    assert process.run(python(code), merge=True).errors == ""
    assert process.run(python("import os; os.kill(os.getpid(), 9)")).status == -9


def test_standard_input_is_empty():
    assert process.run(python("import sys; print(repr(sys.stdin.read()))")).output == "''\n"


def test_bytes_that_are_no_text():
    code = r"import sys; sys.stdout.buffer.write(b'a\xff\r')"
    assert process.run(python(code)).output == "a\ufffd\r"
    assert process.run(python(code), undecodable="surrogateescape").output == "a\udcff\r"


def test_a_log_gets_output_and_errors(tmp_path):
    code = "import sys; print('out', flush=True); print('err', file=sys.stderr)"
    done = process.run(python(code), log=tmp_path / "log")
    assert done.output == (tmp_path / "log").read_text() == "out\nerr\n"


def test_a_program_that_is_not_run(tmp_path):
    with pytest.raises(process.NotRunError, match=r"/x: does not start: No such file") as caught:
        process.run([tmp_path / "x"])
    assert caught.value.reason == "does not start: No such file or directory"
    with pytest.raises(process.NotRunError, match="gave no answer in 1 s"):
        process.run(python("import time; time.sleep(60)"), timeout=1)
    with pytest.raises(process.NotRunError), (tmp_path / "log").open("w") as log:
        process.stream([tmp_path / "x"], print, log=log)
    with pytest.raises(process.NotRunError):
        process.stream_terminal([str(tmp_path / "x")], print, {})


@pytest.mark.parametrize(
    ("output", "errors", "reason"),
    [
        ("", "", "it said nothing"),
        ("a\nb\n\n", "", "b"),
        ("a\n", " error: c \nd\n", "d"),
    ],
)
def test_the_reason_is_the_last_line(output, errors, reason):
    done = process.ProcessResult(1, output, errors)
    assert done.reason() == reason
    with pytest.raises(TorchwheelError, match=f"^building x: {reason}$"):
        done.require("building x")
    process.ProcessResult(0, output, errors).require("building x")


def test_the_reason_is_a_line_that_names_an_error():
    done = process.ProcessResult(1, "a.cu: error: no\nb.cu: error: no\n", "2 found\n")
    assert done.reason(re.compile("error")) == "b.cu: error: no"
    assert done.reason(re.compile("error"), first=True) == "a.cu: error: no"
    assert done.reason(re.compile("fatal")) == "2 found"
    assert done.reason(re.compile("fatal"), first=True) == "a.cu: error: no"


def test_a_full_disk_has_its_type():
    done = process.ProcessResult(1, "", "ld: x.so: No space left on device\n")
    with pytest.raises(DiskFullError):
        done.require("linking")


def test_lines_come_while_the_program_runs(tmp_path):
    code = (
        "import sys; print('\x1b[1mout\x1b[0m', flush=True); print(' err', file=sys.stderr)\n"
        "sys.exit(2)"
    )
    heard = []
    with (tmp_path / "log").open("w") as log:
        assert process.stream(python(code), heard.append, log=log) == 2
    assert heard == ["out", " err"]
    assert (tmp_path / "log").read_text() == "\x1b[1mout\x1b[0m\n err\n"


def test_a_terminals_lines_come_once_and_without_codes():
    code = (
        "import sys\nassert sys.stdout.isatty() and not sys.stdin.isatty()\n"
        r"sys.stdout.write('[1/2] a\x1b[K\r[1/2] a\x1b[K\r\x1b[1m[2/2] b\x1b[0m\n'); sys.exit(4)"
    )
    heard = []
    assert process.stream_terminal(python(code), heard.append, {}) == 4
    assert heard == ["[1/2] a", "[2/2] b"]
