import sys
import time

import pytest

from torchwheel.builder import ninja
from torchwheel.builder.ninja import Plan, Step
from torchwheel.errors import TorchwheelError
from torchwheel.ownership import UntrustedError


def test_a_step_is_named_when_it_starts_and_a_failure_is_told(tmp_path):
    slow = Step("slow step", ("sh", "-c", "sleep 0.5; touch a"), (), "a")
    bad = Step("bad step", ("sh", "-c", "echo x.cu: error: no good; exit 1"), ("a",), "b")
    heard: list[tuple[float, str]] = []
    begun = time.monotonic()

    def hear(line: str) -> None:
        heard.append((time.monotonic() - begun, line))

    with pytest.raises(TorchwheelError, match=r"building b failed: x\.cu: error: no good"):
        ninja.run(Plan((slow, bad), ("b",)), tmp_path, 1, hear)
    named = {line: seconds for seconds, line in reversed(heard)}
    # Said at its start: as long before the next step as it takes.
    assert named["[2/2] bad step"] - named["[1/2] slow step"] > 0.4
    assert all(ninja.is_progress(line) for _, line in heard if line.endswith("step"))


def test_the_signal_that_ended_ninja_is_named(tmp_path):
    # ninja is the parent of the shell that starts this one.
    kill = "read -r _ _ _ ninja _ < /proc/$PPID/stat; kill -9 $ninja"
    killed = Step("slow step", ("sh", "-c", kill), (), "a")
    with pytest.raises(TorchwheelError, match=r"ninja was ended by SIGKILL in \[1/1\] slow step"):
        ninja.run(Plan((killed,), ("a",)), tmp_path, 1, lambda _: None)


def test_names_with_blanks_dollars_and_colons_survive_ninja(tmp_path):
    name = "odd $name: here.txt"
    step = Step("make it", ("sh", "-c", 'printf "%s" "$1" > "$1"', "sh", name), (), name)
    (built,) = ninja.run(Plan((step,), (name,)), tmp_path / "b", 1, lambda _: None)
    assert built.read_text() == name


def test_without_ninja_a_line_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ninja", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(TorchwheelError) as error:
        ninja.find_ninja()
    assert str(error.value) == (
        "ninja: expected it in this environment or on the PATH, found none; run "
        f"`{sys.executable} -m pip install ninja`"
    )
    program = tmp_path / "ninja"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o777)
    with pytest.raises(UntrustedError, match=r"is not used: .*ninja: others may write to it"):
        ninja.find_ninja()
    program.chmod(0o755)
    assert ninja.find_ninja() == str(program)
