"""Every hostile wheel is refused in one line, at once."""

import time
from pathlib import Path

import pytest

import hostile
from torchwheel.check.facts import Limits
from torchwheel.check.gates import run_gates
from torchwheel.inspect.wheel import open_wheel
from torchwheel_runtime.inspect.window import WheelError
from wheelmaker import make_wheel

SECONDS = 10


@pytest.mark.parametrize("name", hostile.WHEELS)
def test_a_hostile_wheel_is_one_line_and_passes_no_gate(tmp_path: Path, name: str) -> None:
    case = hostile.WHEELS[name]
    path = case.make(tmp_path)
    start = time.process_time()
    with pytest.raises(WheelError) as caught, open_wheel(path) as opened, opened.extract():
        pass
    text = str(caught.value)
    assert case.says in text
    assert text.startswith(f"{path.name}: ")
    assert "\n" not in text
    assert text.isprintable()
    assert len(text) < 500
    assert not any(result.ok for result in run_gates(path, Limits(max_size_mib=64)))
    assert time.process_time() - start < SECONDS


def test_the_wheel_that_they_are_made_of_is_right(tmp_path: Path) -> None:
    assert all(result.ok for result in run_gates(make_wheel(tmp_path), Limits(max_size_mib=64)))
