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
from torchwheel_runtime.machine.toolkits import pip_install_command
from torchwheel_runtime.validate.before_build import (
    build_findings,
    check_two_toolkits,
    preferred_toolkit,
)


def before_build(claims, machine=HERE, toolkit=TOOLKIT, **options):
    found = build_findings(claims, machine, toolkit, package="pkg", **options)
    return [(str(one), one.blocks) for one in found]


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


@pytest.mark.parametrize(
    ("claims", "machine", "toolkit", "sentence"),
    [
        (
            STABLE,
            HERE,
            None,
            "toolkit: expected a CUDA toolkit; found none (no CUDA_HOME, no nvcc on the PATH, none "
            f"elsewhere); {pip_install_command('13.0')}, or set CUDA_HOME to CUDA 13.0",
        ),
        (
            changed(ATEN, toolkit_version=None),
            changed(HERE, torch=CUDA_12),
            None,
            "toolkit: expected a CUDA toolkit; found none (no CUDA_HOME, no nvcc on the PATH, none "
            "elsewhere); install CUDA 12.4 with its compiler, and set CUDA_HOME to its folder",
        ),
        (
            HIP,
            changed(HERE, torch=ROCM),
            None,
            "toolkit: expected a ROCm toolkit; found none (no ROCM_PATH, no hipcc on the PATH, "
            "none elsewhere); install ROCm 7.1 with its compiler, and set ROCM_PATH to its folder",
        ),
        (
            STABLE,
            HERE,
            changed(TOOLKIT, problem="a mixed toolkit: nvcc 13.0.88, nvvm 13.5.37", fix="do this"),
            "toolkit: expected a CUDA toolkit whose parts are of one release; found CUDA 13.0 in "
            "/cuda-13.0 (nvcc on the PATH): a mixed toolkit: nvcc 13.0.88, nvvm 13.5.37; do this",
        ),
        (
            changed(ATEN, torch_range="==2.11.*"),
            HERE,
            InstalledToolkit("cuda", Path("/x"), "", "CUDA_HOME", "it has no bin/nvcc", "set it"),
            "toolkit: expected a CUDA toolkit whose parts are of one release; found CUDA in /x "
            "(CUDA_HOME): it has no bin/nvcc; set it",
        ),
        (
            changed(ATEN, torch_range="==2.11.*"),
            HERE,
            OLDER,
            "toolkit-torch: expected CUDA 13, that of torch 2.11.0+cu130, built with CUDA 13.0 "
            "(torch's C++ API hands out structures of its own CUDA runtime); found CUDA 12.4 in "
            f"/cuda-12.4 (/usr/local/cuda); {pip_install_command('13.0')}, "
            "or set CUDA_HOME to CUDA 13.0",
        ),
        (
            changed(HIP, abi="aten"),
            changed(HERE, torch=ROCM),
            changed(HIPCC, release="6.4"),
            "toolkit-torch: expected ROCm 7, that of torch 2.11.0+rocm7.1, built with ROCm 7.1 "
            "(HIP has no static runtime, and torch's libamdhip64.so is that of its major); found "
            "ROCm 6.4 in /opt/rocm (/opt/rocm); install ROCm 7.1 with its compiler, and set "
            "ROCM_PATH to its folder",
        ),
        (
            STABLE,
            changed(HERE, host=None, host_problem=Absent("no C++ compiler on the PATH")),
            TOOLKIT,
            "host-compiler: expected a C++ compiler; found no C++ compiler on the PATH; `apt-get "
            "install g++`, or set CXX to a compiler",
        ),
        (
            STABLE,
            changed(HERE, host=changed(GCC, version="16.1.0")),
            TOOLKIT,
            "host-compiler: expected gcc >=6,<16 or clang >=7,<21, which CUDA 13.0 works with; "
            "found gcc 16.1.0 (/usr/bin/g++); `apt-get install g++-15` and `export CXX=g++-15`",
        ),
        (
            STABLE,
            changed(HERE, host=changed(GCC, family="clang", version="18.1.8")),
            OLDER,
            "host-compiler: expected gcc >=6,<14 or clang >=7,<18, which CUDA 12.4 works with; "
            "found clang 18.1.8 (/usr/bin/g++); `apt-get install g++-13` and `export CXX=g++-13`",
        ),
        (
            STABLE,
            changed(HERE, gpus=(P100,)),
            TOOLKIT,
            "archs: expected code for GPU 1 (Tesla P100, 6.0); found 8.0 9.0+PTX; name 6.0 in "
            "TORCH_CUDA_ARCH_LIST",
        ),
        (
            HIP,
            changed(HERE, torch=ROCM, gpus=(MI300,)),
            HIPCC,
            "archs: expected code for GPU 0 (AMD Instinct MI300X, gfx942); found gfx90a; name "
            "gfx942 in PYTORCH_ROCM_ARCH",
        ),
        (
            STABLE,
            changed(HERE, gpus=(B200,)),
            NEWER,
            "ptx: expected a driver for CUDA 13.2, whose PTX GPU 0 (NVIDIA B200, 10.0) depends on; "
            "found driver 580.95.05, for CUDA up to 13.0; update the driver, or name 10.0 in "
            "TORCH_CUDA_ARCH_LIST",
        ),
    ],
)
def test_what_does_not_fit_is_not_built(claims, machine, toolkit, sentence):
    assert before_build(claims, machine, toolkit) == [(sentence, True)]


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
    assert str(finding) == (
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
