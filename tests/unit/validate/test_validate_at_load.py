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
    WHEELS,
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


@pytest.mark.parametrize(
    ("claims", "facts", "sentence"),
    [
        (
            STABLE,
            {"torch": None},
            "torch: expected torch>=2.11; found none; `pip install 'torch>=2.11'`",
        ),
        (
            STABLE,
            {"torch": changed(CUDA_12, cuda="13.0")},
            "torch: expected torch>=2.11, which pkg is built for; found torch 2.6.0+cu124; "
            f"`pip install 'torch>=2.11'`, or install {WHEELS} that is for torch 2.6",
        ),
        (
            changed(ATEN, toolkit_version="13.0"),
            {},
            "torch: expected torch==2.6.*, which pkg is built for; found torch 2.11.0+cu130; "
            f"`pip install 'torch==2.6.*'`, or install {WHEELS} that is for torch 2.11",
        ),
        (
            ATEN,
            {"torch": Torch("2.6.0+cpu", None, None, Path("/t"))},
            "backend: expected a torch built for CUDA, which pkg has its kernels for; found torch "
            "2.6.0+cpu, built for CPUs only; `pip install --force-reinstall torch==2.6.0` brings "
            "PyPI's, which has CUDA",
        ),
        (
            STABLE,
            {"torch": ROCM},
            "backend: expected a torch built for CUDA, which pkg has its kernels for; found torch "
            f"2.11.0+rocm7.1, built with ROCm 7.1; install {WHEELS} with kernels for ROCm, or a "
            "torch for CUDA",
        ),
        (
            HIP,
            {},
            "backend: expected a torch built for ROCm, which pkg has its kernels for; found torch "
            f"2.11.0+cu130, built with CUDA 13.0; install {WHEELS} with kernels for CUDA, or a "
            "torch for ROCm",
        ),
        (
            ATEN,
            {"torch": Torch("2.6.0+cu118", "11.8", None, Path("/t"))},
            "toolkit-torch: expected CUDA 11, that of torch 2.6.0+cu118, built with CUDA 11.8 "
            "(torch's C++ API hands out structures of its own CUDA runtime); found a library "
            f"built with CUDA 12.4; install {WHEELS} built with CUDA 11",
        ),
        (
            changed(HIP, toolkit_version="6.4"),
            {"torch": ROCM},
            "toolkit-torch: expected ROCm 7, that of torch 2.11.0+rocm7.1, built with ROCm 7.1 "
            "(HIP has no static runtime, and torch's libamdhip64.so is that of its major); found a "
            f"library built with ROCm 6.4; install {WHEELS} built with ROCm 7",
        ),
        (
            STABLE,
            {"glibc": "2.28", "glibc_floor": "2.31"},
            "glibc: expected glibc 2.31 or later, which pkg's wheel is for; found glibc 2.28; use "
            "a newer system, or build it here: `pip install --no-binary pkg pkg`",
        ),
        (
            STABLE,
            {"glibc": None},
            "glibc: expected glibc 2.17 or later, which pkg's wheel is for; found a C library that "
            "is not glibc; use a newer system, or build it here: `pip install --no-binary pkg pkg`",
        ),
        (
            STABLE,
            {"driver": Driver("cuda", "575.57.08", "12.9")},
            "driver: expected NVIDIA's driver 580.65.06 or later, which CUDA 13 needs; found "
            "driver 575.57.08, for CUDA up to 12.9; update the driver, or on a data-centre GPU "
            "`apt-get install cuda-compat-13-0`",
        ),
        (
            changed(STABLE, toolkit_version="12.4"),
            {"driver": R470},
            "driver: expected NVIDIA's driver 525.60.13 or later, which CUDA 12 needs; found "
            "driver 470.82.01, for CUDA up to 11.4; update the driver, or on a data-centre GPU "
            "`apt-get install cuda-compat-12-0`",
        ),
        (
            changed(STABLE, toolkit_version="11.8"),
            {"driver": Driver("cuda", "450.51.06", "11.0")},
            "driver: expected NVIDIA's driver 450.80.02 or later, which CUDA 11 needs; found "
            "driver 450.51.06, for CUDA up to 11.0; update the driver, or on a data-centre GPU "
            "`apt-get install cuda-compat-11-0`",
        ),
        (
            changed(STABLE, toolkit_version="13.2"),
            {"driver": R580, "gpus": (B200,)},
            "ptx: expected a driver for CUDA 13.2, whose PTX GPU 0 (NVIDIA B200, 10.0) depends on; "
            "found driver 580.95.05, for CUDA up to 13.0; update the driver, or install a wheel "
            "with code for 10.0 (without one, the first call builds it)",
        ),
        (
            STABLE,
            {"gpus": (P100,)},
            "archs: expected code for GPU 1 (Tesla P100, 6.0); found 8.0 9.0+PTX; install a "
            "wheel with code for 6.0 (without one, the first call builds it)",
        ),
        (
            HIP,
            {"torch": ROCM, "gpus": (MI300,)},
            "archs: expected code for GPU 0 (AMD Instinct MI300X, gfx942); found gfx90a; install "
            "a wheel with code for gfx942 (without one, the first call builds it)",
        ),
    ],
)
def test_what_does_not_fit_is_refused_in_one_sentence(claims, facts, sentence):
    assert at_load(claims, **facts) == [(sentence, True)]


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
