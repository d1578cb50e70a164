"""What a run shows while it works: tasks, the live line, the lines of a log, groups in CI."""

import contextlib
import io
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from torchwheel.pipeline.schedule import in_order, stopped_lines
from torchwheel_runtime import console
from torchwheel_runtime.actions_log import Groups, escape_commands
from torchwheel_runtime.console import Escaping, Terminal, print_error
from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.tasks import ENDING, Count, Task, Tasks

ROOT = Path(__file__).parents[2]
TASKS = ("build: ", "")


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


class Time:
    """A clock that stands still, but for what a test adds to it."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Time()
    monkeypatch.setattr(console, "time", clock)
    monkeypatch.setattr(console, "HEARING", 0)
    monkeypatch.setattr(console, "_TICK", 600)
    monkeypatch.setenv("COLUMNS", "80")
    return clock


def said(log: io.StringIO) -> list[str]:
    return log.getvalue().splitlines()


def drawn(screen: Screen) -> list[str]:
    return [text for text in screen.getvalue().split("\r\x1b[K") if text]


# Ninja's lines, one each 10 s, of two compilers and then of another ninja; what each shows to end.
LINES = [
    ("a.cu", Count(0, 3), []),
    ("b.cu", Count(0, 3), []),
    ("b.cu", Count(1, 3), [("b.cu", 10)]),
    ("link", Count(1, 3), []),
    ("a.cu", Count(2, 3), [("a.cu", 40)]),
    ("link", Count(3, 3), [("link", 20)]),
    ("stub", Count(0, 1), []),
    ("stub", Count(1, 1), [("stub", 10)]),
    ("waiting: x", None, []),
    ("smoke", None, [("waiting: x", 10)]),
    # Not on a terminal, ninja names a step at its end alone.
    ("compiled c.cu", Count(1, 2), [("smoke", 10), ("compiled c.cu", None)]),
]


def test_the_end_of_a_step_is_seen_in_ninjas_count():
    task = Task(("pure",))
    for at, (text, count, ended) in enumerate(LINES):
        assert task.change(text, count, 10.0 * at) == ended
    assert (task.earlier, task.count) == (4, Count(1, 2))


PLAN = {("u", "cu130"): 60.0, ("u", "gates"): 2.0, ("p", "build"): 10.0, ("p", "smoke"): 28.0}


def test_what_is_done_and_left_is_counted_over_all_tasks():
    tasks = Tasks(0)
    tasks.plan(PLAN)
    assert (tasks.count, tasks.seconds_left(0)) == ((0, 4), 100)
    tasks.begin(("u",), 0)
    pure = tasks.begin(("p",), 0)
    kernels, build = tasks.begin(("u", "cu130"), 0), tasks.begin(("p", "build"), 0)
    assert tasks.seconds_left(5) == (55 + 2 + 5 + 28) / 2
    assert tasks.seconds_left(99) == (2 + 28) / 2
    kernels.change("a.cu", Count(0, 3), 1)
    kernels.change("a.cu", Count(1, 3), 2)
    assert tasks.count == (1, 7)
    assert [name for name, _ in tasks.at_work()] == ["u: cu130", "p: build"]
    tasks.end(build)
    # What was planned for a variant that is up to date, or failed, is not to come.
    tasks.end(pure)
    assert (tasks.count, tasks.seconds_left(5)) == ((3, 7), 57)
    tasks.plan({("q", "build"): None})
    assert tasks.seconds_left(5) is None


def run_two(progress: Terminal, clock: Time) -> None:
    """A variant with two parts in threads of their own, and one that is up to date."""
    progress.plan({("u", "a"): 30.0, ("u", "b"): 30.0, ("p", "build"): 5.0})

    def build(name: str) -> None:
        with progress.task(name):
            progress.step("x.cu", Count(0, 1))
            clock.now += 4
            progress.step("x.cu", Count(1, 1))
            progress.step("auditwheel")
            clock.now += 1

    with progress.live_line():
        progress.step("bundled: building")
        with progress.task("u") as task:
            in_order(["a", "b"], build, 1)
            task.result = "u.whl"
        with progress.task("p") as task:
            task.result = "nothing to do"


def test_a_log_has_a_line_for_each_end(clock):
    log = io.StringIO()
    run_two(Terminal(log), clock)
    assert said(log) == [
        "   0.0s    bundled: building  0.0 s",
        "   4.0s    u: a: x.cu  4.0 s",
        "   5.0s    u: a: auditwheel  1.0 s",
        "   5.0s    u: a  5.0 s",
        "   9.0s    u: b: x.cu  4.0 s",
        "  10.0s    u: b: auditwheel  1.0 s",
        "  10.0s    u: b  5.0 s",
        "  10.0s  u: u.whl  10.0 s",
        "  10.0s  p: nothing to do  0.0 s",
    ]


def test_a_terminal_has_one_live_line_and_keeps_the_results(clock):
    screen = Screen()
    run_two(Terminal(screen), clock)
    shown = drawn(screen)
    assert "0:00  0/4  about 1:05 left  u: a: x.cu" in shown
    assert "0:04  1/4  about 1:01 left  u: a: auditwheel" in shown
    assert "0:05  2/5  about 0:35 left  u: b: x.cu" in shown
    assert [line for line in shown if "\n" in line] == [
        "  10.0s  u: u.whl  10.0 s\n",
        "  10.0s  p: nothing to do  0.0 s\n",
    ]
    assert screen.getvalue().endswith(("\n", "\r\x1b[K"))


def test_a_live_line_says_how_many_others_run_and_never_wraps(clock, monkeypatch):
    screen = Screen()
    progress = Terminal(screen)
    progress.step("語" * 100, Count(0, 2))
    clock.now += 65
    progress.step("b" * 100, Count(0, 2))
    assert drawn(screen) == [
        f"0:00  0/2  {'語' * 34}",  # two columns each, of 79
        f"1:05  0/2  {'b' * 64}  +1",
    ]
    monkeypatch.setenv("COLUMNS", "20")  # the window became smaller
    progress.step("c.cu", Count(0, 2))
    assert len(drawn(screen)[-1]) <= 19


def test_a_live_line_spares_a_line_that_has_no_end_yet(clock, monkeypatch):
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    with Terminal().live_line() as progress:
        progress.step("a")
        print("50 %", end="", file=sys.stderr)
        progress.step("b")
        print(" done", file=sys.stderr)
        progress.step("c")
    assert "".join(drawn(screen)) == "0:00  a50 % done\n0:00  c"


def test_a_dumb_terminal_gets_the_lines_of_a_log(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    assert not Terminal(Screen()).is_live


def test_the_live_line_is_drawn_again_while_nothing_is_said(monkeypatch):
    monkeypatch.setattr(console, "_TICK", 0.01)
    screen = Screen()
    with Terminal(screen).live_line() as progress:
        progress.step("a")
        begun = threading.Event()
        while len(drawn(screen)) < 3:
            begun.wait(0.01)
    assert screen.getvalue().endswith("\r\x1b[K")


@pytest.mark.parametrize("stopped", [False, True])
def test_what_failed_says_why_at_once_and_what_was_stopped_did_not_fail(clock, stopped):
    log = io.StringIO()
    progress = Terminal(log)

    def fail() -> None:
        with progress.task("u"), progress.task("a"), progress.task("link"):
            progress.step("x.cu", Count(0, 1))
            clock.now += 2
            if stopped:
                ENDING.set()
            raise TorchwheelError("nvcc died")

    try:
        with pytest.raises(TorchwheelError):
            fail()
    finally:
        ENDING.clear()
    how, why = ("stopped", "") if stopped else ("FAILED", ": nvcc died")
    assert said(log) == [
        f"   2.0s    u: a: link: {how} after 2.0 s{why}",
        f"   2.0s  u: {how} after 2.0 s",
    ]


def test_a_run_that_was_stopped_says_what_became_of_each_variant():
    states = {"a": "finished", "b": "stopped", "c": "not begun", "d": "not begun"}
    assert stopped_lines(states) == ["  finished   a", "  stopped    b", "  not begun  c, d"]
    many = {f"cu130-torch2.{minor}-cp311": "stopped" for minor in range(20)}
    assert max(map(len, stopped_lines(many))) <= 80


# The build of a variant is replaced: cu130-stable is up to date, the others compile without end.
COMMAND = """
import signal, sys, tempfile
from pathlib import Path
from types import SimpleNamespace
from torchwheel.cli import main
from torchwheel.pipeline import wheels
from torchwheel_runtime import process

for number in (signal.SIGTERM, signal.SIGINT):  # `nohup pytest &` would ignore them
    signal.signal(number, signal.default_int_handler if number == 2 else signal.SIG_DFL)
dist = Path(sys.argv[1])
nvcc = 'trap "echo error: no object; exit 1" INT TERM; touch $0; sleep 600 & wait $!'

def build(run, variant):
    if variant.id == "cu130-stable":
        return SimpleNamespace(file="x.whl"), False
    with tempfile.TemporaryDirectory(prefix="making-", dir=dist / ".torchwheel"):
        with run.progress.task("build"):
            process.run(["sh", "-c", nvcc, dist / variant.id]).require("nvcc")

wheels.build_variant = build
wheels.build_bundled = lambda *_: ()
names = ["pure", "cu130-stable", "cu132-stable", "universal"]
sys.exit(main(["wheels", *names, "--at-once", "2", "--dist", str(dist)]))
"""


def running_in(group: int) -> list[str]:
    """The processes of a group, but for zombies."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            name, _, rest = path.read_text().rpartition(")")
            state, _, of, *_ = rest.split()
            found += [name] if int(of) == group and state != "Z" else []
    return found


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="there is no /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_stopped_did_not_fail(tmp_path, number):
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, str(tmp_path)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    compiling = [tmp_path / "cu132-stable", tmp_path / "universal"]
    begun = time.monotonic()
    while not all(path.exists() for path in compiling):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() - begun < 60
        time.sleep(0.01)
    # A terminal sends ^C to the compilers, too.
    os.killpg(process.pid, number) if number == signal.SIGINT else process.send_signal(number)
    out, errors = process.communicate(timeout=30)
    assert process.returncode == 128 + number
    assert out == ""
    said = errors.splitlines()
    lines = [re.sub(r"^.*?s  +|\d+\.\d(?= s)", "", line) for line in said]
    assert lines[0] == "cu130-stable: nothing to do   s"
    stopped = [f"{path.name}: {part}stopped after  s" for path in compiling for part in TASKS]
    assert sorted(lines[1:5]) == sorted(stopped)
    assert said[5:] == [
        "torchwheel: stopped; run again to go on",
        "  finished   cu130-stable",
        "  stopped    cu132-stable, universal",
        "  not begun  pure",
    ]
    assert not list((tmp_path / ".torchwheel").glob("making-*"))
    assert running_in(process.pid) == []


# GitHub Actions.


@pytest.fixture
def actions(monkeypatch):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")


def test_groups_are_written_one_after_another():
    out = io.StringIO()
    groups = Groups(out.write)
    for name in ("a", "b", "c"):
        groups.begin(name)
    for name in ("b", "a", "", "c"):
        groups.line(name, f"of {name}\n")
    groups.end("b")
    groups.end("a")
    groups.line("c", "at once\n")
    groups.end("c")
    groups.line("", "no group\n")
    assert out.getvalue() == (
        "::group::a\nof a\nof \n::endgroup::\n::group::b\nof b\n::endgroup::\n"
        "::group::c\nof c\nat once\n::endgroup::\nno group\n"
    )


def test_a_variant_is_a_group_in_actions(clock, actions):
    log = io.StringIO()
    run_two(Terminal(log), clock)
    lines = said(log)
    marks = [at for at, line in enumerate(lines) if line.startswith("::")]
    assert [lines[at] for at in marks] == ["::group::u", "::endgroup::", "::group::p"] + [
        "::endgroup::"
    ]
    assert marks[1] - marks[0] == 8


COMMANDS = {
    "::error::x": "\\u003a:error::x",
    " \t::add-mask::x": " \t\\u003a:add-mask::x",
    "a\n::stop-commands::x\n": "a\n\\u003a:stop-commands::x\n",
    "\r::error::x": "\\u000d::error::x",
    "a ##[error]x": "a \\u0023#[error]x",
    "###[group]x": "#\\u0023#[group]x",
    "%0A::error::x": "%0A::error::x",  # the runner decodes it in its own commands alone
    "std::vector": "std::vector",
    ":": "\\u003a",
    "\u3000::error::": "\\u3000::error::",
}


def is_command(line: str) -> bool:
    """Whether a runner takes a line for a command."""
    return line.strip().startswith("::") or "##[" in line


@pytest.mark.parametrize("text", COMMANDS)
def test_what_others_print_is_no_command_for_the_runner(monkeypatch, actions, text):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stdout", Escaping(stream))
    print(text)
    assert stream.getvalue().rstrip("\n") == COMMANDS[text].rstrip("\n")
    print(":", text, sep="")
    print("a", end="")
    print(text)
    log = io.StringIO()
    progress = Terminal(log)
    progress.say(text)
    progress.step(text)
    with pytest.raises(TorchwheelError), progress.task(text):
        raise TorchwheelError(text)
    own = r"::(group|endgroup)::.*"
    lines = [*stream.getvalue().split("\n"), *log.getvalue().split("\n")]
    assert [line for line in lines if is_command(line) and not re.fullmatch(own, line)] == []


def test_a_text_that_goes_on_in_a_line_begins_none():
    assert escape_commands("::x\n::y##[z", open_line=True) == "::x\n\\u003a:y\\u0023#[z"


@pytest.mark.parametrize("failed", [True, False])
def test_an_error_is_one_command_in_actions(monkeypatch, actions, failed):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", Escaping(stream))
    print_error("50% of x\n::error::y", "z", failed=failed)
    line = "torchwheel: 50% of x\\u000a::error::y\nz"
    escaped = line.replace("%", "%25").replace("\n", "%0A")
    assert stream.getvalue() == (f"::error::{escaped}\n" if failed else f"{line}\n")
