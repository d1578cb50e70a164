import dataclasses
import time
from pathlib import Path

import pytest

from torchwheel.builder.cuda import EXPORTS, stable_plan
from torchwheel.builder.library import NativeLibrary
from torchwheel.builder.ninja import render
from torchwheel.builder.plan import Plan, Step, Target, target_version
from torchwheel.errors import TorchwheelError

LIBRARY = NativeLibrary(
    package="pkg._lib",
    device=("csrc/*.cu",),
    host=("csrc/*.cpp",),
    bindings={"stable": ("csrc/stable.cpp",)},
    include_dirs=("csrc",),
    macros={"ANSWER": "42", "FLAG": ""},
)
TARGET = Target(
    name="cu130-stable",
    abi="stable",
    source=Path("/project"),
    cuda_home=Path("/cuda"),
    toolkit="13.0",
    gencode=(
        "-gencode=arch=compute_90,code=sm_90",
        "-gencode=arch=compute_120,code=[sm_120,compute_120]",
    ),
    cxx="/usr/bin/g++",
    torch_include=Path("/torch/include"),
    torch_floor="2.11",
    launcher=("sccache",),
)


def plan() -> Plan:
    return stable_plan(
        LIBRARY, ["csrc/a.cu", "csrc/b c.cu"], ["csrc/host.cpp"], ["csrc/stable.cpp"], TARGET
    )


def test_the_rendered_plan_is_the_golden_one(golden):
    golden("plan.ninja", render(plan()).replace(str(EXPORTS), "/torchwheel/exports.map"))


def test_every_input_is_a_source_or_an_earlier_output():
    made: set[str] = set()
    for step in plan().steps:
        assert all(
            name.startswith("/project/") or name in {*made, str(EXPORTS)} for name in step.inputs
        )
        made.add(step.output)
    assert plan().output in made


def test_kernels_never_see_torch():
    for step in plan().steps:
        if step.label.startswith("CUDA") or step.label == "C++ csrc/host.cpp":
            flags = [flag for flag in step.command if "prefix-map" not in flag]
            assert not any("/torch/include" in flag for flag in flags)


def test_the_commands_of_two_folders_differ_in_nothing_that_reaches_the_binary():
    text = render(plan())
    assert "-ffile-prefix-map=/project=." in text
    assert "--strip-all" in text


@pytest.mark.parametrize(("toolkit", "small"), [("12.4", False), ("12.8", True), ("13.2", True)])
def test_device_code_is_compressed_where_the_compiler_can(toolkit, small):
    target = dataclasses.replace(TARGET, toolkit=toolkit)
    made = stable_plan(LIBRARY, ["csrc/a.cu"], [], [], target)
    assert ("--compress-mode=size" in made.steps[0].command) == small


@pytest.mark.parametrize(
    ("floor", "number"), [("2.11", "0x020b000000000000"), ("2.9.1", "0x0209000000000000")]
)
def test_target_version(floor, number):
    assert target_version(floor) == number


def test_a_step_is_named_when_it_starts_and_a_failure_is_told(tmp_path):
    from torchwheel.builder import ninja

    slow = Step("slow step", ("sh", "-c", "sleep 0.5; touch a"), (), "a")
    bad = Step("bad step", ("sh", "-c", "echo x.cu: error: no good; exit 1"), ("a",), "b")
    heard: list[tuple[float, str]] = []
    begun = time.monotonic()

    def hear(line: str) -> None:
        heard.append((time.monotonic() - begun, line))

    with pytest.raises(TorchwheelError, match=r"building b failed: x\.cu: error: no good"):
        ninja.run(Plan((slow, bad), "b"), tmp_path, 1, hear)
    named = {line: seconds for seconds, line in reversed(heard)}
    # Said at its start: as long before the next step as it takes.
    assert named["[2/2] bad step"] - named["[1/2] slow step"] > 0.4
    assert all(ninja.is_progress(line) for _, line in heard if line.endswith("step"))


def test_names_with_blanks_dollars_and_colons_survive_ninja(tmp_path):
    from torchwheel.builder import ninja

    name = "odd $name: here.txt"
    step = Step("make it", ("sh", "-c", 'printf "%s" "$1" > "$1"', "sh", name), (), name)
    built = ninja.run(Plan((step,), name), tmp_path / "b", 1, lambda _: None)
    assert built.read_text() == name
