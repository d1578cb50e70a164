"""The choice among the libraries of our universal wheel, on the machines it has to serve."""

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchwheel.matrix.load import load
from torchwheel.matrix.variants import select
from torchwheel.pipeline.inputs import claims_of
from torchwheel_runtime.arch.devices import Driver, Gpu
from torchwheel_runtime.arch.model import backend_of, parse
from torchwheel_runtime.arch.runs import runs_on
from torchwheel_runtime.builder.extension import ArchFilter, Operator
from torchwheel_runtime.claims import Part
from torchwheel_runtime.machine.facts import Torch
from torchwheel_runtime.runtime.choice import (
    Installation,
    choose_front_end,
    choose_kernels,
    has_code,
    reasons_text,
)

(UNIVERSAL,) = select(load(Path("matrix.yaml")), ["universal"])
PARTS = claims_of(UNIVERSAL).parts
DRIVERS = {"580": "13.0", "550": "12.4", "470": "11.4"}
TORCHES = {
    "2.6.0+cu124": ("12.4", None),
    "2.8.0+cu128": ("12.8", None),
    "2.9.1+rocm6.4": (None, "6.4.43482"),
    "2.11.0+cu130": ("13.0", None),
    "2.11.0+cu126": ("12.6", None),
    "2.12.0+rocm7.2": (None, "7.2.26015"),
    "2.15.0": ("13.2", None),
    "3.0.0": ("14.0", None),
}


def here(torch: str, *, driver: str = "580", forced: str | None = None, **facts: bool):
    cuda, hip = TORCHES.get(torch, (None, None))
    found = Driver("cuda", f"{driver}.1", DRIVERS[driver]) if cuda else Driver("rocm", "6.10")
    torch_ = Torch(torch, cuda, hip, Path("/torch"), facts.get("old_abi", False))
    return Installation("fusedops", torch_, "2.28", found, forced)


def chosen(torch: str, gpu: str, **facts):
    choice = choose_kernels(PARTS, here(torch, **facts), Gpu(0, "a GPU", parse(gpu)))
    return choice.parts[0].name if choice.parts else None


@pytest.mark.parametrize(
    ("torch", "gpu", "driver", "name"),
    [
        # Machine code of torch's own major release.
        ("2.11.0+cu130", "9.0", "580", "cu130"),
        ("2.11.0+cu130", "8.9", "580", "cu130"),
        ("2.11.0+cu126", "9.0", "580", "cu124"),
        ("2.6.0+cu124", "8.0", "580", "cu124"),
        ("2.15.0", "12.0", "580", "cu130"),
        # GPUs that only one release knows.
        ("2.11.0+cu130", "7.0", "580", "cu124"),
        ("2.11.0+cu126", "6.1", "550", "cu124"),
        ("2.8.0+cu128", "10.0", "580", "cu130"),
        # A newer GPU than both: machine code of its major release, else PTX.
        ("2.8.0+cu128", "12.1", "580", "cu130"),
        ("2.11.0+cu130", "11.0", "580", "cu124"),
        # The driver decides.
        ("2.8.0+cu128", "9.0", "550", "cu124"),
        ("2.8.0+cu128", "10.0", "550", "cu124"),
        ("2.6.0+cu124", "8.0", "470", None),
        # A GPU that no release here has code for.
        ("2.6.0+cu124", "3.5", "470", None),
        # ROCm: torch's major release.
        ("2.9.1+rocm6.4", "gfx942", "580", "rocm6.4"),
        ("2.12.0+rocm7.2", "gfx942", "580", "rocm7.2"),
        ("2.12.0+rocm7.2", "gfx950", "580", "rocm7.2"),
        ("2.9.1+rocm6.4", "gfx950", "580", None),
    ],
)
def test_kernels(torch, gpu, driver, name):
    assert chosen(torch, gpu, driver=driver) == name


def test_each_library_that_is_not_chosen_has_a_reason():
    choice = choose_kernels(PARTS, here("2.11.0+cu130"), Gpu(0, "H100", parse("9.0")))
    assert [part.name for part in choice.parts] == ["cu130", "cu124"]
    others = dataclasses.replace(choice, used=choice.parts[0]).others
    assert set(others) == {"cu124", "rocm6.4", "rocm7.2"}
    assert others["cu124"] == "cu130 fits better"
    assert "a torch built for ROCm" in others["rocm7.2"]
    assert reasons_text(others).count("a torch built for ROCm") == 1


def test_a_library_that_proved_unfit_has_its_own_reason():
    choice = choose_kernels(PARTS, here("2.11.0+cu130"), Gpu(0, "H100", parse("9.0")))
    faults = {"cu130": "is cut", "cu124": "is cut"}
    unfit = dataclasses.replace(choice, refused={**choice.refused, **faults})
    start = "no kernel library serves GPU 0 (H100, 9.0): cu130, cu124: is cut; rocm6.4, rocm7.2: "
    assert unfit.reason.startswith(start)


def test_a_forced_library_is_the_only_candidate():
    assert chosen("2.11.0+cu130", "9.0", forced="cu124") == "cu124"
    choice = choose_kernels(
        PARTS, here("2.11.0+cu130", forced="cu124"), Gpu(3, "B200", parse("10.0"))
    )
    # It has PTX for newer GPUs.
    assert [part.name for part in choice.parts] == ["cu124"]
    none = choose_kernels(PARTS, here("2.11.0+cu130", forced="rocm7.2"), choice.gpu)
    assert not none.parts
    assert none.reason.startswith("no kernel library serves GPU 3 (B200, 10.0): ")
    assert "cu124, cu130, rocm6.4: TORCHWHEEL_LIBRARY=rocm7.2" in none.reason


@pytest.mark.parametrize(
    ("torch", "old_abi", "name"),
    [
        ("2.6.0+cu124", False, "torch2.6"),
        ("2.8.0+cu128", False, "torch2.8"),
        ("2.9.1+rocm6.4", False, "torch2.9"),
        ("2.11.0+cu130", False, "stable"),
        ("2.12.0a0+git", False, "stable"),
        ("3.0.0", False, "stable"),
        ("2.13.0+cpu", False, "stable"),
    ],
)
def test_front_end(torch, old_abi, name):
    found = choose_front_end(PARTS, here(torch, old_abi=old_abi))
    assert isinstance(found, Part), found
    assert found.name == name


FEWER = [part for part in PARTS if part.name not in ("torch2.8", "torch2.9")]
EARLY = "expected torch 2.6 or later, found torch {}; `pip install 'torch>=2.6'`"


@pytest.mark.parametrize(
    ("parts", "installed", "says"),
    [
        (PARTS, here("2.5.1"), f": {EARLY.format('2.5.1')}"),
        (PARTS, here("1.13.1+cu117"), f": {EARLY.format('1.13.1+cu117')}"),
        (
            FEWER,
            here("2.8.0+cu128"),
            ": expected torch 2.6, 2.7, 2.10, 2.11 or later, found torch 2.8.0+cu128; "
            "install one of these",
        ),
        ((), here("2.8.0+cu128"), ": expected one, found none in fusedops; reinstall it"),
        (
            PARTS,
            here("2.6.0+cu124", old_abi=True),
            " torch2.6: expected a torch with libstdc++'s new strings, found torch "
            "2.6.0+cu124 with the old ones; install another build of torch",
        ),
    ],
    ids=["before every one", "CUDA 11", "between", "none", "old strings"],
)
def test_a_torch_without_a_front_end_is_named(parts, installed, says):
    assert choose_front_end(parts, installed) == f"front end{says}"


def test_code_of_a_family_for_a_gpu():
    (part,) = [part for part in PARTS if part.name == "cu130"]
    newer = Operator("newer", (), archs=ArchFilter(cuda=(10, 0)))
    gpus = {arch: Gpu(0, "a GPU", parse(arch)) for arch in ("9.0", "10.0")}
    assert has_code(part, Operator("any", ()), gpus["9.0"])
    assert not has_code(part, newer, gpus["9.0"])
    assert has_code(part, newer, gpus["10.0"])


GPUS = ("5.0", "6.1", "7.0", "7.5", "8.0", "8.6", "8.7", "8.9", "9.0", "10.0", "10.3", "12.1")
AMD = ("gfx906", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201")


@given(st.sampled_from(sorted(TORCHES)), st.sampled_from(GPUS + AMD), st.sampled_from([*DRIVERS]))
def test_what_is_chosen_runs_and_the_rest_is_explained(torch, gpu, driver):
    installed = here(torch, driver=driver)
    choice = choose_kernels(PARTS, installed, Gpu(0, "a GPU", parse(gpu)))
    kernels = [part for part in PARTS if part.kind == "kernels"]
    for part in choice.parts:
        assert part.backend == installed.torch.backend
        if backend_of(choice.gpu.arch) == part.backend:
            assert any(runs_on(arch, choice.gpu.arch) for arch in part.archs)
    best = dataclasses.replace(choice, used=next(iter(choice.parts), None))
    assert {*(part.name for part in choice.parts[:1]), *best.others} == {
        one.name for one in kernels
    }
    assert "\n" not in choice.reason
