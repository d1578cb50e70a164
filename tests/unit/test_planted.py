"""The faults that `nox -s planted` plants, and the models they name."""

import dataclasses
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "emulation"))

pytest.importorskip("torch", reason="torch is not installed")

import emulate  # noqa: E402
import model_library  # noqa: E402
import planted  # noqa: E402
from model_library import MODELS, Library, model_flags, plan, reaches  # noqa: E402
from planted import load, misplaced  # noqa: E402

from fusedops.registry import families  # noqa: E402
from torchwheel_runtime.builder import Flags  # noqa: E402
from torchwheel_runtime.errors import TorchwheelError  # noqa: E402

CSRC = ROOT / "csrc"


def model(*, block: int, line: int, size: int) -> str:
    """What an operator raises of a fault of the device code."""
    return (
        f"RuntimeError: vector_add: the GPU refused the kernel: model sm_90: kernel k, block "
        f"({block}, 0, 0), kernels/rows_map.cuh:{line}: reads {size} bytes outside of any tensor"
    )


def test_every_place_is_found():
    assert [reason for fault in load() if (reason := misplaced(fault))] == []


def test_there_are_enough_of_every_kind():
    faults = load()
    assert len(faults) >= 25
    assert {fault.family for fault in faults} <= set(families())
    assert {fault.model for fault in faults} == set(MODELS)
    for kind in ("barrier", "wait", "tail", "narrow-index", "64-lanes", "row", "uninitialised"):
        assert any(fault.name.endswith(kind) for fault in faults), kind


def test_the_models_are_those_of_the_device_code():
    text = (CSRC / "platform" / "cpu" / "models.cpp").read_text(encoding="utf-8")
    assert tuple(re.findall(r'^    \{"(\w+)"', text, re.M)) == MODELS
    documented = (ROOT / "docs" / "emulation.md").read_text(encoding="utf-8")
    assert tuple(re.findall(r"^\| `(\w+)` \|", documented, re.M)) == MODELS


def test_a_models_macros():
    assert model_flags("sm_90") == ("-DFUSEDOPS_MODEL=sm_90", "-D__CUDA_ARCH__=900")
    assert model_flags("gfx90a") == ("-DFUSEDOPS_MODEL=gfx90a", "-D__HIP_PLATFORM_AMD__")


def test_the_host_side_is_compiled_once_for_all_models():
    one, other = (plan(Library(model, ("norm",))) for model in ("sm_90", "gfx90a"))
    shared = {step.output for step in one} & {step.output for step in other}
    assert {name.split("/")[0] for name in shared} == {"host", "torch"}


def test_the_extensions_macros_and_flags_are_in_the_commands(monkeypatch):
    flags = Flags(cxx=("-O3",), cuda=("-DTILE=64", "--use_fast_math"), hip=("-DWAVES=2",))
    changes = {"flags": flags, "macros": {"ANSWER": "42"}, "include_dirs": (".", "third_party")}
    monkeypatch.setattr(
        model_library, "EXTENSION", dataclasses.replace(model_library.EXTENSION, **changes)
    )
    own = {"-O3", "-DTILE=64", "--use_fast_math", "-DWAVES=2", "-DANSWER=42"}
    for model, macro in (("sm_90", "-DTILE=64"), ("gfx90a", "-DWAVES=2")):
        made = plan(Library(model, ("norm",)))
        found = {step.output: own.intersection(step.command) for step in made[:-1]}
        assert found[f"{model}/kernels/norm.cu.o"] == {macro, "-DANSWER=42"}
        assert found["torch/torch/stable/library.cpp.o"] == {"-O3", "-DANSWER=42"}
        assert found["host/families/norm.cpp.o"] == {"-O3", "-DANSWER=42"}
        assert all(f"-I{CSRC}/third_party" in step.command for step in made[:-1])


def test_a_changed_header_reaches_what_includes_it():
    changed = {"kernels/reduce.cuh"}
    assert reaches(CSRC / "kernels/softmax.cu", CSRC, changed)
    assert not reaches(CSRC / "kernels/layout.cu", CSRC, changed)
    assert reaches(CSRC / "kernels/layout.cu", CSRC, {"kernels/layout.cu"})


# One fault of the device code in three tests, another line of it, and two results that are wrong.
PLACE = "/w/pkg/fusedops/call.py:78"
CLOSE = "/w/tests/smoke/cases/case.py:40"
FAILURES = [
    ("a[float32]", PLACE, model(block=0, line=210, size=4)),
    ("a[float16]", "/w/torch/autograd.py:5", model(block=15, line=210, size=2)),
    ("b[float16]", PLACE, f"{model(block=7, line=210, size=2)}\nmore"),
    ("b[float32]", PLACE, model(block=0, line=211, size=4)),
    ("c[1]", CLOSE, "AssertionError: off by 1.5e-05"),
    ("c[2]", CLOSE, "AssertionError: off by 22"),
    ("d", f"{CLOSE}0", "AssertionError: off by 22"),
    ("e", "", "worker 'gw0' crashed while running 'e'"),
    ("f", "", "worker 'gw1' crashed while running 'f'"),
]


def test_one_fault_is_one_report():
    failures = [{"test": test, "place": place, "says": says} for test, place, says in FAILURES]
    found = emulate.faults_of(failures)
    assert [fault.tests for fault in found] == [
        *(("a[float32]", "a[float16]", "b[float16]"), ("b[float32]",), ("c[1]", "c[2]")),
        *(("d",), ("e", "f")),
    ]
    assert str(found[0]) == (
        "FAULT, in 3 tests: model sm_90: kernel k, block (0, 0, 0), kernels/rows_map.cuh:210: "
        "reads 4 bytes outside of any tensor\n  first in a[float32]"
    )
    assert str(found[2]) == "FAULT, in 2 tests: AssertionError: off by 1.5e-05\n  first in c[1]"


@pytest.mark.parametrize(
    ("tool", "arguments", "says"),
    [
        (emulate, ["sofmax"], 'emulate: no family "sofmax"; did you mean "softmax"?\n'),
        (emulate, ["--model", "sm_91"], 'emulate: no model "sm_91"; did you mean "sm_90"'),
        (emulate, ["--bits", "x"], "emulate: --bits: expected one --model, "),
        (planted, ["vector-tial"], 'planted: no fault "vector-tial"; did you mean "vector-tail"'),
    ],
)
def test_a_misspelt_name_is_one_line(tool, arguments, says, capsys):
    assert tool.main(arguments) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith(says)
    assert told.err.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (ValueError("odd"), "emulate: ValueError: odd; `nox -s emulate -- --debug …` shows all"),
        (KeyboardInterrupt(), "emulate: stopped\n"),
        (TorchwheelError("g++ ended with status 1"), "emulate: g++ ended with status 1\n"),
    ],
)
def test_an_error_of_the_tool_itself_is_one_line(error, says, capsys):
    def fail():
        raise error

    assert emulate.guard("emulate", fail, debug=False) == 1
    told = capsys.readouterr().err
    assert told.startswith(says)
    assert told.count("\n") == 1
    if isinstance(error, Exception):
        with pytest.raises(type(error)):
            emulate.guard("emulate", fail, debug=True)
