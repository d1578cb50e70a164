"""The order in which a finished wheel is judged: its gates first, then its smoke tests."""

import dataclasses
from pathlib import Path

import pytest

from torchwheel.image.engine import Engine
from torchwheel.image.images import BuiltImage
from torchwheel.matrix.load import load
from torchwheel.matrix.variants import select
from torchwheel.pipeline import executors
from torchwheel.pipeline import variant as module
from torchwheel.pipeline.build_records import BuiltWheel
from torchwheel.pipeline.executors import Assembler
from torchwheel.pipeline.in_container import Container
from torchwheel.pipeline.on_host import Host
from torchwheel.smoke.smoke_record import MachineRecord, SmokeRecord, TestReport
from torchwheel_runtime.errors import TorchwheelError
from wheelmaker import make_wheel

MATRIX = load(Path("matrix.yaml"))
IMAGE = BuiltImage("localhost/torchwheel/image:0123", "0123", "4567")
MACHINE = MachineRecord("3.12.1", "Linux", "2.36", "2.13.0", None, None, None)
FAILED = SmokeRecord(
    *("demo.whl", "", 0, "", MACHINE, (), TestReport(), "", {}, "failed"), why="no test ran"
)


@pytest.fixture
def judge(tmp_path, monkeypatch, run_of):
    """`judge(variant, gate)`: the error of a wheel whose tests fail, and all that was asked of it.

    `gate` is the error of its gates, if they do not hold.
    """
    asked: list[str] = []
    wheel = make_wheel(tmp_path / "built", files={"demo/__init__.py": b""})

    def answer(name: str, value: object) -> object:
        return lambda *_, **__: (asked.append(name), value)[1]

    def error_of(name: str, gate: str | None) -> tuple[str, list[str]]:
        (variant,) = select(MATRIX, [name])
        contained = Engine("podman", {}) if name == "cu130-stable" else None

        def check_gates(*_: object) -> tuple[object, ...]:
            asked.append("gates")
            if gate:
                raise TorchwheelError(gate)
            return ()

        smoke = dataclasses.replace(FAILED, wheel=wheel.name)
        monkeypatch.setattr(module, "check_gates", check_gates)
        monkeypatch.setattr(Assembler, "facts", ["key"])
        monkeypatch.setattr(executors, "ensure_image", lambda *_: IMAGE)
        for builder in (Host, Assembler):
            monkeypatch.setattr(builder, "build", answer("build", BuiltWheel(wheel)))
            monkeypatch.setattr(builder, "smoke", answer("smoke", smoke))
        monkeypatch.setattr(Container, "_run_cibuildwheel", answer("build", (wheel, smoke)))
        (tmp_path / "dist/.torchwheel").mkdir(parents=True)
        run = run_of(MATRIX, Path.cwd(), engine=contained)
        with pytest.raises(TorchwheelError) as error:
            module.build_variant(run, variant)
        return str(error.value), asked

    return error_of


EVERY = ["pure", "universal", "cu130-stable"]


@pytest.mark.parametrize("name", EVERY)
def test_a_wheel_that_a_gate_rejects_is_not_tried(name, judge, tmp_path):
    error, asked = judge(name, "gate size: too large")
    assert error.startswith("gate size: too large (the wheel is kept as ")
    assert asked == ["build", "gates"]
    assert not (tmp_path / "dist/smoke").exists()


@pytest.mark.parametrize("name", EVERY)
def test_a_wheel_whose_gates_hold_is_tried_next(name, judge):
    error, asked = judge(name, None)
    assert error.startswith("smoke: no test ran; see ")
    # A container has tried it by then, and its verdict waits for the gates.
    assert asked == ["build", "gates", *(["smoke"] if name != "cu130-stable" else [])]
