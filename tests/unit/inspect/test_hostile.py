"""Every hostile wheel and library is refused in one line, at once."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import hostile
from torchwheel.check.facts import Limits, read_facts
from torchwheel.check.gates import judge, run_gates
from torchwheel.inspect.wheel import open_wheel
from torchwheel_runtime.doctor.native import provided_symbols, provided_versions
from torchwheel_runtime.inspect.window import WheelError
from wheelmaker import make_wheel

LIMITS = Limits(max_size_mib=64)


@contextlib.contextmanager
def at_once() -> Iterator[None]:
    start = time.process_time()
    yield
    assert time.process_time() - start < 10


@pytest.mark.parametrize("name", hostile.WHEELS)
def test_a_hostile_wheel_is_one_line_and_passes_no_gate(tmp_path: Path, name: str) -> None:
    case = hostile.WHEELS[name]
    path = case.make(tmp_path)
    with (
        at_once(),
        pytest.raises(WheelError) as caught,
        open_wheel(path) as opened,
        opened.extract(),
    ):
        pass
    text = str(caught.value)
    assert case.says in text
    assert text.startswith(f"{path.name}: ")
    assert "\n" not in text
    assert text.isprintable()
    assert len(text) < 500
    with at_once():
        assert not any(result.ok for result in run_gates(path, LIMITS))


def test_the_wheel_that_they_are_made_of_is_right(tmp_path: Path) -> None:
    assert all(result.ok for result in run_gates(make_wheel(tmp_path), LIMITS))


@pytest.mark.parametrize("name", hostile.LIBRARIES)
def test_the_gates_of_its_wheel_fail(tmp_path: Path, name: str) -> None:
    path = hostile.wheel_with(tmp_path, name)
    with at_once():
        facts = read_facts(path)
        results = {result.name: result for result in judge(facts, LIMITS)}
    fault = facts.libraries.fault or facts.gpu_code.fault or ""
    assert hostile.LIBRARIES[name][1] in fault
    assert fault.isprintable()
    assert not results["archs"].ok
    assert results["record"].ok


@pytest.mark.parametrize("name", hostile.DEFINING)
def test_the_doctor_finds_no_definition_in_it(tmp_path: Path, name: str) -> None:
    path = tmp_path / "x.so"
    path.write_bytes(hostile.DEFINING[name])
    with at_once(), contextlib.suppress(WheelError):
        assert provided_symbols(path, ["f", "other"]) <= {"f"}
        assert provided_versions(path) == frozenset()
