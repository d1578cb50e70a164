"""The faults that `nox -s planted` plants, and the models they name."""

import dataclasses
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "emulation"))

pytest.importorskip("torch", reason="torch is not installed")

import model_library  # noqa: E402
from model_library import MODELS, Library, model_flags, plan, reaches  # noqa: E402
from planted import load, misplaced  # noqa: E402

from fusedops.registry import families  # noqa: E402
from torchwheel_runtime.builder import Flags  # noqa: E402

CSRC = ROOT / "csrc"


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
        assert found["host/ops/norm.cpp.o"] == {"-O3", "-DANSWER=42"}
        assert all(f"-I{CSRC}/third_party" in step.command for step in made[:-1])


def test_a_changed_header_reaches_what_includes_it():
    changed = {"kernels/reduce.cuh"}
    assert reaches(CSRC / "kernels/softmax.cu", CSRC, changed)
    assert not reaches(CSRC / "kernels/layout.cu", CSRC, changed)
    assert reaches(CSRC / "kernels/layout.cu", CSRC, {"kernels/layout.cu"})
