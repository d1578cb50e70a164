"""Programs are run in one place; a failure is one line, and a signal ends what was started."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import torchwheel
import torchwheel_runtime
from programmaker import run_python
from torchwheel import programs
from torchwheel_runtime import pip, process
from torchwheel_runtime.errors import DiskFullError, TorchwheelError

# Programs are run in one place, and a failure is one line.


HALVES = (torchwheel, torchwheel_runtime)
# They start a child that outlives a call, is killed as a group or runs without torchwheel.
OTHERS = {
    "doctor/importing.py",
    "image/engine.py",
    "pipeline/frontend.py",  # raises the error that PEP 517's hooks expect
    "process.py",
    "compilers/compiler_cache.py",  # a server that runs beside the build
    "smoke/probe.py",
}


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_no_other_module_starts_programs():
    users = {
        str(path.relative_to(half.__path__[0]))
        for half in HALVES
        for path in Path(half.__path__[0]).rglob("*.py")
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
        programs.stream([tmp_path / "x"], print, log=log)
    with pytest.raises(process.NotRunError):
        process.stream_terminal([str(tmp_path / "x")], print, {})


@pytest.mark.parametrize(
    ("output", "errors", "reason"),
    [
        ("", "", "it said nothing"),
        ("a\nb\n\n", "", "b"),
        ("a\n", " error: c \nd\n", "d"),
        ("", "ld: x.so: No space left on device\n", "ld: x.so: No space left on device"),
    ],
)
def test_the_reason_is_the_last_line(output, errors, reason):
    done = process.ProcessResult(1, output, errors)
    assert done.reason() == reason
    full = "No space left" in reason
    with pytest.raises(DiskFullError if full else TorchwheelError, match=f"^building x: {reason}$"):
        done.require("building x")
    process.ProcessResult(0, output, errors).require("building x")


def test_the_reason_is_a_line_that_names_an_error():
    done = process.ProcessResult(1, "a.cu: error: no\nb.cu: error: no\n", "2 found\n")
    assert done.reason(re.compile("error")) == "b.cu: error: no"
    assert done.reason(re.compile("error"), first=True) == "a.cu: error: no"
    assert done.reason(re.compile("fatal")) == "2 found"
    assert done.reason(re.compile("fatal"), first=True) == "a.cu: error: no"


def test_lines_come_while_the_program_runs(tmp_path):
    code = (
        "import sys; print('\x1b[1mout\x1b[0m', flush=True); print(' err', file=sys.stderr)\n"
        "sys.exit(2)"
    )
    heard = []
    with (tmp_path / "log").open("w") as log:
        assert programs.stream(python(code), heard.append, log=log) == 2
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


# A signal that ends a command ends its programs, theirs, and the compilers' server.


# A command with a program that has one of its own, one that outlives its parent, one that
# ignores the request to end, and servers as sccache's: a session of their own, their parents gone.
# One of them runs a compiler.
COMMAND = """
import signal, sys, tempfile
from pathlib import Path
from torchwheel import programs
from torchwheel_runtime import process
from torchwheel_runtime.arguments import command
from torchwheel.cli import main

# What `nohup pytest &` starts would ignore some of them.
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)
programs._GRACE = 0.3
folder = Path(sys.argv[1])
tempfile.tempdir = sys.argv[1]
SCRIPT = '''
sleep 600 & echo $! >> pids
sh -c 'sleep 600 & echo $! >> pids'
sh -c 'trap "" TERM; echo $$ >> pids; while :; do sleep 1; done' &
setsid sh -c './sccache 600 & echo $! >> pids'
setsid sh -c 'shell/sccache compile.sh &'
while [ ! -e compiling ]; do sleep 0.01; done
echo $$ >> pids
touch ready
wait
'''

@command("compile", "Run programs.")
def compile(options):
    Path(tempfile.mkdtemp(), "object").touch()
    process.run(["sh", "-c", SCRIPT], cwd=folder)
    return 0

sys.exit(main(["compile"], [compile]))
"""

COMPILE = """
trap "exit 0" TERM
echo $$ >> pids
sh -c 'trap "" TERM; echo $$ >> pids; touch compiling; while :; do sleep 1; done' &
wait
"""


def runs(process: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        state = Path("/proc", str(process), "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.fixture
def folder(tmp_path):
    # The kernel names a process after its file.
    shutil.copy(shutil.which("sleep"), tmp_path / "sccache")
    (tmp_path / "shell").mkdir()
    shutil.copy(shutil.which("sh"), tmp_path / "shell" / "sccache")
    (tmp_path / "compile.sh").write_text(COMPILE)
    return tmp_path


@pytest.fixture
def another_server(folder):
    """A server that was there already."""
    process = subprocess.Popen([folder / "sccache", "600"], start_new_session=True)
    yield process
    process.kill()
    process.wait()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="there is no /proc")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_programs_theirs_and_the_server_that_the_run_started(
    folder, another_server, number
):
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    begun = time.monotonic()
    while not (folder / "ready").exists():
        assert time.monotonic() - begun < 60, process.communicate()
        time.sleep(0.01)
    programs = [int(line) for line in (folder / "pids").read_text().split()]
    try:
        assert len(programs) == 7
        assert all(map(runs, programs))
        process.send_signal(number)
        _, err = process.communicate(timeout=30)
        assert [program for program in programs if runs(program)] == []
        assert runs(another_server.pid)
    finally:
        for program in programs:
            with contextlib.suppress(ProcessLookupError):
                os.kill(program, signal.SIGKILL)
    assert process.returncode == 128 + number
    assert err == "torchwheel: stopped; run again to go on\n"
    assert not list(folder.glob("torchwheel-*"))


# A user's own process, which is no command of torchwheel, builds at a first call.
BUILD = """
import signal, sys
from pathlib import Path
from torchwheel_runtime.builder import ninja

signal.signal(signal.SIGTERM, signal.SIG_DFL)
if sys.argv[2] == "handler":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
folder = Path(sys.argv[1])
script = "echo $$ >> pids; sleep 600 & echo $! >> pids; touch ready; wait"
steps = tuple(ninja.Step("one", ("sh", "-c", script), (), name) for name in "ab")
ninja.run(steps, folder, 2, print)
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="there is no /proc")
@pytest.mark.parametrize(
    ("how", "number", "status"),
    [
        ("default", signal.SIGTERM, -signal.SIGTERM),
        ("default", signal.SIGKILL, -signal.SIGKILL),
        ("handler", signal.SIGTERM, 5),
    ],
)
def test_compilers_end_with_a_users_own_process(tmp_path, how, number, status):
    process = subprocess.Popen(
        [sys.executable, "-c", BUILD, str(tmp_path), how],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    begun = time.monotonic()
    while not (tmp_path / "pids").exists() or len((tmp_path / "pids").read_text().split()) < 4:
        assert time.monotonic() - begun < 60
        time.sleep(0.01)
    programs = [int(line) for line in (tmp_path / "pids").read_text().split()]
    try:
        process.send_signal(number)
        ended = time.monotonic()
        while (left := list(filter(runs, programs))) and time.monotonic() - ended < 2:
            time.sleep(0.01)
        assert left == []
        assert process.wait(timeout=10) == status
    finally:
        for program in (*programs, process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(program, signal.SIGKILL)
        process.wait()


@pytest.mark.parametrize(("handler", "says"), [("SIG_IGN", "goes on\n"), ("SIG_DFL", "")])
def test_a_signal_that_is_ignored_stays_ignored(handler, says):
    code = (
        "import os, signal\n"
        "from torchwheel import programs\n"
        f"signal.signal(signal.SIGHUP, signal.{handler})\n"
        "with programs.end_programs_on_signals():\n"
        "    os.kill(os.getpid(), signal.SIGHUP)\n"
        "    print('goes on')\n"
    )
    done = run_python(code)
    assert done.stdout == says
    assert ("InterruptedRunError" in done.stderr) == (not says)


def test_no_program_starts_while_a_signal_ends_them():
    code = (
        "import os, signal, threading\n"
        "from torchwheel import programs\nfrom torchwheel_runtime import process\n"
        "try:\n"
        "    with programs.end_programs_on_signals():\n"
        "        try:\n"
        "            os.kill(os.getpid(), signal.SIGTERM)\n"
        "        finally:\n"
        "            for start in (process.run, lambda c: programs.stream(c, print, log=None)):\n"
        "                try:\n"
        "                    start(['true'])\n"
        "                except process.NotRunError as error:\n"
        "                    print(error)\n"
        "except KeyboardInterrupt:\n"
        "    print(process.run(['true']).status)\n"
    )
    done = run_python(code)
    why = "true: not started, as this run was stopped\n"
    assert done.stdout == why + why + "0\n", done.stderr


def test_another_thread_leaves_the_signals_alone():
    code = (
        "import signal, threading\n"
        "from torchwheel import programs\n"
        "def work():\n"
        "    with programs.end_programs_on_signals():\n"
        "        print(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)\n"
        "thread = threading.Thread(target=work); thread.start(); thread.join()\n"
    )
    done = run_python(code)
    assert done.stdout == "True\n", done.stderr


def test_pip_has_a_home_where_its_user_has_none(monkeypatch):
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    assert pip.home_variables() == {"HOME": "/"}
    monkeypatch.undo()
    assert pip.home_variables() == {}
