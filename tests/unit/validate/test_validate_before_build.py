"""What is asked before a build: every rule, with the sentence it ends in."""

from pathlib import Path

import pytest
from facts_of_machines import (
    ATEN,
    B200,
    CPU,
    CUDA,
    CUDA_12,
    GCC,
    HERE,
    HIP,
    HIPCC,
    MI250,
    MI300,
    NEWER,
    OLDER,
    P100,
    PURE,
    R470,
    ROCM,
    STABLE,
    TOOLKIT,
    changed,
)

from torchwheel_runtime.machine.facts import Absent, InstalledToolkit
from torchwheel_runtime.validate.before_build import (
    build_findings,
    check_two_toolkits,
    preferred_toolkit,
)


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
REFUSED = {
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
    for name, (claims, changes, toolkit) in REFUSED.items():
        ((sentences[name], blocks),) = before_build(claims, changed(HERE, **changes), toolkit)
        assert blocks
    golden("refused_before_build.txt", "".join(f"{n}: {says}\n" for n, says in sentences.items()))


@pytest.mark.parametrize(
    ("changes", "rule"),
    [({"torch": ROCM}, "backend"), ({"torch": CUDA_12}, "torch"), ({"driver": R470}, "driver")],
    ids=["backend", "torch", "driver"],
)
def test_what_would_not_load_is_not_built(changes, rule):
    """test_validate_at_load.py has the sentences."""
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
