"""A signal that ends a command ends its programs, theirs, and the compilers' server."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

# A command with a program that has one of its own, one that outlives its parent, one that
# ignores the request to end, and servers as sccache's: a session of their own, their parents gone.
# One of them runs a compiler.
COMMAND = """
import signal, sys, tempfile
from pathlib import Path
from torchwheel import process, process_tree
from torchwheel.arguments import command
from torchwheel.cli import main

# What `nohup pytest &` starts would ignore some of them.
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)
process_tree._GRACE = 0.3
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
    assert process.returncode == 1
    assert err == "torchwheel: stopped; run again to go on\n"
    assert not list(folder.glob("torchwheel-*"))


# A user's own process, which is no command of torchwheel, builds at a first call.
BUILD = """
import signal, sys
from pathlib import Path
from torchwheel.builder import ninja

signal.signal(signal.SIGTERM, signal.SIG_DFL)
if sys.argv[2] == "handler":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
folder = Path(sys.argv[1])
script = "echo $$ >> pids; sleep 600 & echo $! >> pids; touch ready; wait"
steps = tuple(ninja.Step("one", ("sh", "-c", script), (), name) for name in "ab")
ninja.run(ninja.Plan(steps, ("a", "b")), folder, 2, print)
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
        "from torchwheel import process_tree\n"
        f"signal.signal(signal.SIGHUP, signal.{handler})\n"
        "with process_tree.end_programs_on_signals():\n"
        "    os.kill(os.getpid(), signal.SIGHUP)\n"
        "    print('goes on')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == says
    assert ("KeyboardInterrupt" in done.stderr) == (not says)


def test_no_program_starts_while_a_signal_ends_them():
    code = (
        "import os, signal, threading\n"
        "from torchwheel import process, process_tree\n"
        "try:\n"
        "    with process_tree.end_programs_on_signals():\n"
        "        try:\n"
        "            os.kill(os.getpid(), signal.SIGTERM)\n"
        "        finally:\n"
        "            for start in (process.run, lambda c: process.stream(c, print, log=None)):\n"
        "                try:\n"
        "                    start(['true'])\n"
        "                except process.NotRunError as error:\n"
        "                    print(error)\n"
        "except KeyboardInterrupt:\n"
        "    print(process.run(['true']).status)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    why = "true: not started, as this run was stopped\n"
    assert done.stdout == why + why + "0\n", done.stderr


def test_another_thread_leaves_the_signals_alone():
    code = (
        "import signal, threading\n"
        "from torchwheel import process_tree\n"
        "def work():\n"
        "    with process_tree.end_programs_on_signals():\n"
        "        print(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)\n"
        "thread = threading.Thread(target=work); thread.start(); thread.join()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "True\n", done.stderr
