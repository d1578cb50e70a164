"""A program that neither prints nor computes is ended, with all that it started."""

import contextlib
import itertools
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from torchwheel import programs
from torchwheel_runtime import process

pytestmark = pytest.mark.integration


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


# A shell that waits for a child which ignores the request to end, and holds the output open.
HANGS = (
    "import signal, subprocess, sys, time; "
    "child = 'import signal, time; signal.signal(15, signal.SIG_IGN); "
    "print(1, flush=True); time.sleep(99)'; "
    "subprocess.run([sys.executable, '-c', child], start_new_session=True)"
)


BUSY = "import time\nwhile time.process_time() < 2: 1"


def test_a_program_that_is_silent_and_idle_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(programs, "_GRACE", 0.5)
    begun, heard = time.monotonic(), []
    # Other tests of this process may have left a helper of Python's own.
    before = set(programs.running_below(os.getpid(), None))
    with (
        (tmp_path / "log").open("w") as log,
        pytest.raises(process.TimedOutError, match="printed nothing and computed nothing for 1 s"),
    ):
        programs.stream(python(HANGS), heard.append, log=log, silence=1)
    assert heard == ["1"]
    assert time.monotonic() - begun < 30
    assert set(programs.running_below(os.getpid(), None)) <= before


@pytest.mark.parametrize(
    "code",
    [
        "for _ in range(16): print(1, flush=True); time.sleep(0.1)",
        pytest.param(
            f"subprocess.run([sys.executable, '-c', {BUSY!r}])", marks=pytest.mark.nightly
        ),
        # As bubblewrap does.
        f"subprocess.run([sys.executable, '-c', {BUSY!r}], start_new_session=True)",
    ],
    ids=["prints", "computes", "computes in a session of its own"],
)
def test_a_program_that_prints_or_computes_is_not_ended(tmp_path, code):
    with (tmp_path / "log").open("w") as log:
        command = python(f"import subprocess, sys, time\n{code}")
        assert programs.stream(command, lambda _: None, log=log, silence=1) == 0


@pytest.mark.parametrize(
    ("servers", "known"), [(0, False), (1, True)], ids=["elsewhere", "of its own"]
)
def test_a_compiler_that_a_server_runs_is_work(tmp_path, servers, known):
    """A client of sccache waits for a server, which may be below another process."""
    sccache = tmp_path / "sccache"
    sccache.write_bytes(Path("/bin/sleep").read_bytes())
    sccache.chmod(0o755)
    server = tmp_path / "server" / "sccache"
    server.parent.mkdir()
    server.write_bytes(Path("/bin/cat").read_bytes())
    server.chmod(0o755)
    with contextlib.ExitStack() as stack:
        for command in [[sccache, "60"], *[[server]] * servers]:
            started = subprocess.Popen(command, stdin=subprocess.PIPE)
            stack.callback(started.wait)
            stack.callback(started.kill)
        assert (programs.cpu_seconds_below(os.getpid()) is not None) is known


def test_work_elsewhere_counts_and_so_does_what_is_not_known(tmp_path):
    seconds = itertools.count()
    with (tmp_path / "log").open("w") as log:
        for used in (lambda: None, lambda: float(next(seconds))):
            command = python("import time; time.sleep(1.5)")
            assert programs.stream(command, print, log=log, silence=0.5, cpu_seconds=used) == 0
