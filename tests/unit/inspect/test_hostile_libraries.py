"""Every hostile library is refused in one line, at once."""

import contextlib
import time
from pathlib import Path

import pytest

import hostile
from torchwheel.check.facts import Limits, read_facts
from torchwheel.check.gates import judge
from torchwheel_runtime.doctor.native import provided_symbols, provided_versions
from torchwheel_runtime.inspect.window import WheelError

SECONDS = 10


@pytest.mark.parametrize("name", hostile.LIBRARIES)
def test_the_gates_of_its_wheel_fail(tmp_path: Path, name: str) -> None:
    path = hostile.wheel_with(tmp_path, name)
    start = time.process_time()
    facts = read_facts(path)
    results = {result.name: result for result in judge(facts, Limits(max_size_mib=64))}
    assert time.process_time() - start < SECONDS
    fault = facts.libraries.fault or facts.gpu_code.fault or ""
    assert hostile.LIBRARIES[name][1] in fault
    assert fault.isprintable()
    assert not results["archs"].ok
    assert results["record"].ok


@pytest.mark.parametrize("name", hostile.DEFINING)
def test_the_doctor_finds_no_definition_in_it(tmp_path: Path, name: str) -> None:
    path = tmp_path / "x.so"
    path.write_bytes(hostile.DEFINING[name])
    start = time.process_time()
    with contextlib.suppress(WheelError):
        assert provided_symbols(path, ["f", "other"]) <= {"f"}
        assert provided_versions(path) == frozenset()
    assert time.process_time() - start < SECONDS
