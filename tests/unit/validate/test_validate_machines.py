"""What is asked before a library is loaded, and before a build: every rule and its sentence."""

from dataclasses import replace as changed
from pathlib import Path

import pytest

from torchwheel_runtime.arch.devices import Driver, Gpu
from torchwheel_runtime.arch.model import parse
from torchwheel_runtime.claims import LibraryNeeds
from torchwheel_runtime.machine.facts import Absent, InstalledToolkit, Machine, Torch
from torchwheel_runtime.toolkit.host import HostCompiler
from torchwheel_runtime.validate.at_load import load_findings, tag_floor
from torchwheel_runtime.validate.before_build import (
    build_findings,
    check_two_toolkits,
    preferred_toolkit,
)

CUDA = Torch("2.11.0+cu130", "13.0", None, Path("/torch"))
CUDA_12 = Torch("2.6.0+cu124", "12.4", None, Path("/torch"))
ROCM = Torch("2.11.0+rocm7.1", None, "7.1.25424", Path("/torch"))
CPU = Torch("2.13.0+cpu", None, None, Path("/torch"))

ARCHS = parse("8.0"), parse("9.0+PTX")
STABLE = LibraryNeeds("stable", ">=2.11", "cuda", "13.0", ARCHS)
ATEN = LibraryNeeds("aten", "==2.6.*", "cuda", "12.4", ARCHS)
HIP = LibraryNeeds("stable", ">=2.11", "rocm", "7.2", (parse("gfx90a"),))
PURE = LibraryNeeds("pure", ">=2.6")

R580 = Driver("cuda", "580.95.05", "13.0")
R470 = Driver("cuda", "470.82.01", "11.4")
A100 = Gpu(0, "NVIDIA A100", parse("8.0"))
P100 = Gpu(1, "Tesla P100", parse("6.0"))
B200 = Gpu(0, "NVIDIA B200", parse("10.0"))
MI250 = Gpu(0, "AMD Instinct MI250X", parse("gfx90a:sramecc+:xnack-"))
MI300 = Gpu(0, "AMD Instinct MI300X", parse("gfx942"))

TOOLKIT = InstalledToolkit("cuda", Path("/cuda-13.0"), "13.0", "nvcc on the PATH")
OLDER = InstalledToolkit("cuda", Path("/cuda-12.4"), "12.4", "/usr/local/cuda")
NEWER = InstalledToolkit("cuda", Path("/cuda-13.2"), "13.2", "/usr/local/cuda")
HIPCC = InstalledToolkit("rocm", Path("/opt/rocm"), "7.2", "/opt/rocm")
ROCM_10 = Torch("2.14.0+rocm10.1", None, "7.3.60001", Path("/torch"), rocm="10.1.0")
HIPCC_10 = InstalledToolkit("rocm", Path("/rocm10"), "10.1", "rocm-sdk")
GCC = HostCompiler(Path("/usr/bin/g++"), "gcc", "12.2.0")
HERE = Machine("3.12.3", "linux_x86_64", "2.36", CUDA, driver=R580, gpus=(A100,), host=GCC)


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


NOT_LOADED = {
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
    for name, (claims, facts) in NOT_LOADED.items():
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


# Before a build.


def before_build(claims, machine=HERE, toolkit=TOOLKIT, **options):
    found = build_findings(claims, machine, toolkit, package="pkg", **options)
    return [(one.line, one.blocks) for one in found]


@pytest.mark.parametrize(
    ("claims", "machine", "toolkit"),
    [
        (STABLE, HERE, TOOLKIT),
        (STABLE, HERE, NEWER),
        (STABLE, HERE, OLDER),
        (STABLE, changed(HERE, torch=None), TOOLKIT),  # headers alone
        (STABLE, changed(HERE, driver=None, gpus=()), TOOLKIT),
        (STABLE, HERE, changed(TOOLKIT, release="14.0")),  # newer than the tables
        (STABLE, changed(HERE, host=changed(GCC, version="15.2.0")), TOOLKIT),
        (STABLE, changed(HERE, host=changed(GCC, family="clang", version="20.1.2")), TOOLKIT),
        (changed(ATEN, torch_range="==2.11.*"), HERE, NEWER),  # of torch's CUDA major
        (HIP, changed(HERE, torch=ROCM, driver=None, gpus=(MI250,)), HIPCC),
        (HIP, changed(HERE, torch=ROCM, gpus=(), host=changed(GCC, version="99")), HIPCC),
    ],
)
def test_what_fits_is_built(claims, machine, toolkit):
    assert before_build(claims, machine, toolkit) == []


ATEN_HERE = changed(ATEN, torch_range="==2.11.*")
MIXED = changed(TOOLKIT, problem="a mixed toolkit: nvcc 13.0.88, nvvm 13.5.37", fix="do this")
EMPTY = InstalledToolkit("cuda", Path("/x"), "", "CUDA_HOME", "it has no bin/nvcc", "set it")
NO_HOST = {"host": None, "host_problem": Absent("no C++ compiler on the PATH")}
NOT_BUILT = {
    "no CUDA, torch's is in PyPI": (STABLE, {}, None),
    "no CUDA, torch's is not in PyPI": (ATEN, {"torch": CUDA_12}, None),
    "no ROCm": (HIP, {"torch": ROCM}, None),
    "a mixed toolkit": (STABLE, {}, MIXED),
    "an empty toolkit": (ATEN_HERE, {}, EMPTY),
    "an older CUDA": (ATEN_HERE, {}, OLDER),
    "an older ROCm": (changed(HIP, abi="aten"), {"torch": ROCM}, changed(HIPCC, release="6.4")),
    "no compiler": (STABLE, NO_HOST, TOOLKIT),
    "a new gcc": (STABLE, {"host": changed(GCC, version="16.1.0")}, TOOLKIT),
    "a new clang": (STABLE, {"host": changed(GCC, family="clang", version="18.1.8")}, OLDER),
    "another NVIDIA GPU": (STABLE, {"gpus": (P100,)}, TOOLKIT),
    "another AMD GPU": (HIP, {"torch": ROCM, "gpus": (MI300,)}, HIPCC),
    "a driver older than the PTX": (STABLE, {"gpus": (B200,)}, NEWER),
}


def test_what_does_not_fit_is_not_built(golden):
    sentences = {}
    for name, (claims, changes, toolkit) in NOT_BUILT.items():
        ((sentences[name], blocks),) = before_build(claims, changed(HERE, **changes), toolkit)
        assert blocks
    golden("refused_before_build.txt", "".join(f"{n}: {says}\n" for n, says in sentences.items()))


@pytest.mark.parametrize(
    ("changes", "rule"),
    [({"torch": ROCM}, "backend"), ({"torch": CUDA_12}, "torch"), ({"driver": R470}, "driver")],
    ids=["backend", "torch", "driver"],
)
def test_what_would_not_load_is_not_built(changes, rule):
    ((sentence, blocks),) = before_build(STABLE, changed(HERE, **changes))
    assert (sentence.partition(":")[0], blocks) == (rule, True)


def test_a_library_for_another_machine_needs_neither_driver_nor_gpu():
    machine = changed(HERE, driver=R470, gpus=(P100,))
    assert before_build(STABLE, machine, runs_here=False) == []


def test_a_torch_for_cpus_gets_a_toolkit_of_any_release():
    (finding,) = (
        one
        for one in build_findings(STABLE, changed(HERE, torch=CPU), None, package="pkg")
        if one.rule == "toolkit"
    )
    assert finding.fix == "install CUDA with its compiler, and set CUDA_HOME to its folder"


BROKEN = changed(TOOLKIT, root=Path("/broken"), problem="it has no bin/ptxas")


@pytest.mark.parametrize(
    ("claims", "torch", "toolkits", "taken"),
    [
        (STABLE, CUDA, [], None),
        (STABLE, CUDA, [HIPCC], None),
        (STABLE, CUDA, [TOOLKIT], TOOLKIT),
        (STABLE, CUDA, [NEWER, TOOLKIT], TOOLKIT),  # of torch's own release
        (STABLE, CUDA, [OLDER, NEWER], OLDER),  # the first
        (changed(ATEN, torch_range=">=2.6"), CUDA, [OLDER, NEWER], NEWER),  # of torch's major
        (STABLE, CUDA, [BROKEN, NEWER], NEWER),
        (STABLE, CUDA, [BROKEN], BROKEN),  # to be explained
        (STABLE, None, [OLDER], OLDER),
        (ATEN, CUDA, [changed(OLDER, where="CUDA_HOME"), TOOLKIT], "CUDA_HOME"),
        (STABLE, CUDA, [changed(BROKEN, where="CUDA_HOME"), TOOLKIT], "CUDA_HOME"),
        (HIP, ROCM, [TOOLKIT, changed(HIPCC, release="6.4"), HIPCC], HIPCC),
        (HIP, ROCM, [changed(HIPCC, release="6.4"), HIPCC_10], HIPCC_10),  # of HIP 7 too
        (HIP, ROCM_10, [HIPCC, HIPCC_10], HIPCC_10),
        (HIP, ROCM_10, [changed(HIPCC, release="6.4"), HIPCC], HIPCC),
    ],
)
def test_the_toolkit_to_build_with(claims, torch, toolkits, taken):
    found = preferred_toolkit(claims, torch, toolkits)
    assert found == taken or (found and found.where == taken)


def test_two_toolkits_on_the_way():
    home = changed(OLDER, where="CUDA_HOME")
    (finding,) = check_two_toolkits([home, TOOLKIT, NEWER, HIPCC])
    assert finding.line == (
        "two-toolkits: expected one CUDA release in CUDA_HOME and on the PATH; found CUDA 12.4 in "
        "/cuda-12.4 (CUDA_HOME), which is taken, and CUDA 13.0 in /cuda-13.0 (nvcc on the PATH); "
        "`export CUDA_HOME=/cuda-13.0`, or put /cuda-12.4/bin first on the PATH"
    )
    assert not finding.blocks
    assert list(check_two_toolkits([changed(TOOLKIT, where="CUDA_HOME"), TOOLKIT, OLDER])) == []
    assert list(check_two_toolkits([OLDER, NEWER])) == []


def test_a_build_without_a_backend_is_no_build():
    with pytest.raises(ValueError, match="a build has a backend"):
        before_build(PURE)
