"""What is asked before a library is loaded: every rule, with the sentence it ends in."""

from pathlib import Path

import pytest
from facts_of_machines import (
    A100,
    ATEN,
    B200,
    CPU,
    CUDA,
    CUDA_12,
    HIP,
    MI250,
    MI300,
    P100,
    PURE,
    R470,
    R580,
    ROCM,
    STABLE,
    changed,
)

from torchwheel_runtime.arch.devices import Driver
from torchwheel_runtime.machine.facts import Torch
from torchwheel_runtime.validate.at_load import load_findings, tag_floor


def at_load(claims, torch=CUDA, glibc="2.36", driver=None, gpus=(), glibc_floor="2.17"):
    found = load_findings(
        claims, torch, glibc, driver, gpus, package="pkg", glibc_floor=glibc_floor
    )
    return [(one.line, one.blocks) for one in found]


@pytest.mark.parametrize(
    ("claims", "facts"),
    [
        (STABLE, {"torch": CUDA}),
        (STABLE, {"torch": Torch("2.15.0+cu132", "13.2", None, Path("/t"))}),
        (STABLE, {"torch": Torch("2.11.0+cu126", "12.6", None, Path("/t"))}),  # any: static cudart
        (changed(STABLE, toolkit_version="12.4"), {"torch": CUDA, "driver": R580, "gpus": (A100,)}),
        (STABLE, {"driver": Driver("cuda", "580.65.06", None)}),
        (STABLE, {"driver": Driver("cuda", "590.44.01", None)}),
        (STABLE, {"driver": Driver("cuda", "535.54.03", "13.0")}),  # with a compatibility package
        (
            changed(STABLE, toolkit_version="13.2"),
            {"driver": R580, "gpus": (A100,)},
        ),  # of another minor
        (changed(STABLE, toolkit_version="14.0"), {"driver": R580}),  # newer than the tables
        (STABLE, {"driver": R580, "gpus": (B200,)}),  # by PTX
        (changed(STABLE, toolkit_version="12.6"), {"driver": Driver("cuda", "555.42.02", "12.5")}),
        (STABLE, {"driver": Driver("rocm", "6.1.0"), "gpus": (MI300,)}),  # not its GPUs
        (ATEN, {"torch": CUDA_12}),
        (ATEN, {"torch": Torch("2.6.0+cu126", "12.6", None, Path("/t"))}),  # one CUDA major
        (HIP, {"torch": ROCM}),
        (HIP, {"torch": ROCM, "driver": Driver("rocm", "6.1.0"), "gpus": (MI250,)}),
        (PURE, {"torch": CPU}),
        (PURE, {"torch": CUDA, "glibc": None, "glibc_floor": None}),
    ],
)
def test_what_fits_loads(claims, facts):
    assert at_load(claims, **facts) == []


REFUSED = {
    "no torch": (STABLE, {"torch": None}),
    "an older torch": (STABLE, {"torch": changed(CUDA_12, cuda="13.0")}),
    "a newer torch": (changed(ATEN, toolkit_version="13.0"), {}),
    "a torch for CPUs": (ATEN, {"torch": Torch("2.6.0+cpu", None, None, Path("/t"))}),
    "a torch for ROCm": (STABLE, {"torch": ROCM}),
    "a torch for CUDA": (HIP, {}),
    "a torch of an older CUDA": (ATEN, {"torch": Torch("2.6.0+cu118", "11.8", None, Path("/t"))}),
    "a torch of a newer ROCm": (changed(HIP, toolkit_version="6.4"), {"torch": ROCM}),
    "an older glibc": (STABLE, {"glibc": "2.28", "glibc_floor": "2.31"}),
    "no glibc": (STABLE, {"glibc": None}),
    "a driver for CUDA 12": (STABLE, {"driver": Driver("cuda", "575.57.08", "12.9")}),
    "a driver for CUDA 11": (changed(STABLE, toolkit_version="12.4"), {"driver": R470}),
    "a driver for CUDA 11.0": (
        changed(STABLE, toolkit_version="11.8"),
        {"driver": Driver("cuda", "450.51.06", "11.0")},
    ),
    "a driver older than the PTX": (
        changed(STABLE, toolkit_version="13.2"),
        {"driver": R580, "gpus": (B200,)},
    ),
    "another NVIDIA GPU": (STABLE, {"gpus": (P100,)}),
    "another AMD GPU": (HIP, {"torch": ROCM, "gpus": (MI300,)}),
}


def test_what_does_not_fit_is_refused_in_one_sentence(golden):
    sentences = {}
    for name, (claims, facts) in REFUSED.items():
        ((sentences[name], blocks),) = at_load(claims, **facts)
        assert blocks
    golden("refused_at_load.txt", "".join(f"{n}: {says}\n" for n, says in sentences.items()))


def test_a_stable_library_lies_idle_in_a_torch_for_cpus():
    sentence = (
        "backend: expected a torch built for CUDA, which pkg has its kernels for; found torch "
        "2.13.0+cpu, built for CPUs only; `pip install --force-reinstall torch==2.13.0` brings "
        "PyPI's, which has CUDA"
    )
    assert at_load(STABLE, CPU) == [(sentence, False)]
    ((sentence, blocks),) = at_load(HIP, CPU)
    assert sentence.endswith(
        "install a torch for ROCm: pytorch.org's page of installation names the command"
    )
    assert not blocks


def test_a_library_that_serves_one_gpu_of_two_is_loaded():
    ((sentence, blocks),) = at_load(STABLE, gpus=(A100, P100))
    assert sentence.startswith("archs: expected code for GPU 1 (Tesla P100, 6.0)")
    assert not blocks


def test_several_faults_are_several_sentences():
    found = load_findings(ATEN, CPU, "2.17", R470, (P100,), package="pkg", glibc_floor="2.28")
    assert [one.rule for one in found] == ["glibc", "torch", "backend", "driver", "archs"]


@pytest.mark.parametrize(
    ("tags", "oldest"),
    [
        (["manylinux_2_28_x86_64"], "2.28"),
        (["manylinux_2_17_x86_64", "manylinux2014_x86_64"], "2.17"),
        (["manylinux_2_9_x86_64", "manylinux_2_28_x86_64"], "2.9"),
        (["manylinux1_i686"], "2.5"),
        (["manylinux2010_x86_64"], "2.12"),
        (["any"], None),
        (["linux_x86_64", "musllinux_1_2_x86_64"], None),
        ([], None),
    ],
)
def test_the_oldest_glibc_of_a_wheels_tags(tags, oldest):
    assert tag_floor(tags) == oldest
