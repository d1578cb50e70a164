"""The compiler that holds the archs of a build."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchwheel.builder import gpu_compiler

HARD = ("-gencode", "arch=compute_53,code=sm_53", "-gencode=arch=compute_90,code=sm_90")


def call(archs: str, by: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """The guard with an `echo` for a compiler."""
    command = [sys.executable, gpu_compiler.__file__, archs, by, "echo", "nvcc", "--", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_archs_that_setup_py_hard_codes_stop_the_first_file():
    done = call("8.0;9.0+PTX", "environment", "-c", "a.cu", *HARD)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "torchwheel: the project hard-codes the archs 5.3;9.0; expected those of "
        'TORCH_CUDA_ARCH_LIST, 8.0;9.0+PTX; pass --archs "5.3;9.0", or replace them: '
        "build.archs_by: replaced in matrix.yaml, --archs-by replaced of torchwheel build\n"
    )


def test_archs_that_are_the_matrix_own_are_compiled():
    done = call("5.3;9.0", "environment", "-c", "a.cu", *HARD)
    assert done.stdout == " ".join(["nvcc -c a.cu", *HARD]) + "\n"


def test_hard_coded_archs_are_replaced_on_request():
    done = call("8.0;9.0+PTX", "replaced", "-c", "a.cu", "-O3", *HARD, "-o", "a.o")
    assert done.stdout == (
        "nvcc -c a.cu -O3 -o a.o -gencode=arch=compute_80,code=sm_80 "
        "-gencode=arch=compute_90,code=sm_90 -gencode=arch=compute_90,code=compute_90\n"
    )


def test_a_file_may_have_fewer_of_the_declared_archs_but_no_others():
    assert call("5.3;8.0;9.0", "declared", "-c", "a.cu", *HARD).returncode == 0
    done = call("8.0;9.0", "declared", "-c", "a.cu", *HARD)
    assert done.returncode == 1
    assert done.stderr.startswith(
        "torchwheel: the project compiles for 5.3, which the arch list 8.0"
    )


@pytest.mark.parametrize("arguments", [("--version",), ("-dlink", "a.o", *HARD), ("-c", "a.cu")])
def test_calls_that_compile_for_no_named_arch_pass(arguments):
    assert call("8.0", "environment", *arguments).stdout == " ".join(["nvcc", *arguments]) + "\n"


@pytest.mark.parametrize(
    ("options", "codes"),
    [
        (["-gencode", "arch=compute_90a,code=sm_90a"], {"sm_90a"}),
        (["--generate-code=arch=compute_80,code=[compute_80,sm_80]"], {"sm_80", "compute_80"}),
        (['-gencode=arch=compute_80,code="sm_80,compute_80"'], {"sm_80", "compute_80"}),
        (["-arch=sm_86"], {"sm_86", "compute_86"}),
        (["-arch", "native"], {"native"}),
        (["-arch=compute_80", "-code=sm_80,sm_86"], {"sm_80", "sm_86"}),
        (["--offload-arch=gfx90a", "--offload-arch", "gfx1100"], {"gfx90a", "gfx1100"}),
        (["--offload-arch=gfx90a,gfx942"], {"gfx90a", "gfx942"}),
        (["--amdgpu-target=gfx90a"], {"gfx90a"}),
    ],
)
def test_the_ways_to_name_archs(options, codes):
    named, others = gpu_compiler.split([*options, "-c", "a.cu"])
    assert (gpu_compiler.codes_in(named), others) == (codes, ["-c", "a.cu"])


def test_archs_of_amd_are_replaced_too():
    done = call("gfx90a;gfx1100", "replaced", "-c", "a.hip", "--offload-arch=gfx942", "-o", "a.o")
    expected = "nvcc -c a.hip -o a.o --offload-arch=gfx90a --offload-arch=gfx1100\n"
    assert done.stdout == expected
    assert call("gfx90a", "declared", "-c", "a.hip", "--offload-arch=gfx942").returncode == 1
    assert call("gfx90a;gfx942", "declared", "-c", "a.hip", "--offload-arch=gfx942").stdout


CUDA_ARCHS = st.lists(
    st.tuples(st.integers(50, 121), st.sampled_from(["", "a", "f"]), st.booleans()),
    min_size=1,
    unique_by=lambda arch: arch[:2],
).map(
    lambda archs: ";".join(
        f"{number // 10}.{number % 10}{suffix}{'+PTX' * ptx}" for number, suffix, ptx in archs
    )
)


AMD_ARCHS = st.lists(
    st.sampled_from(["gfx90a", "gfx942", "gfx1100", "gfx1201"]), min_size=1, unique=True
).map(";".join)


@given(CUDA_ARCHS | AMD_ARCHS)
def test_what_replaces_is_what_is_expected(archs):
    options = list(gpu_compiler.options_of(archs))
    assert gpu_compiler.codes_in(options) == gpu_compiler.codes_of(archs)
    assert gpu_compiler.fault_of(gpu_compiler.codes_in(options), archs, "environment") is None
    assert sorted(gpu_compiler.arch_list_of(gpu_compiler.codes_of(archs)).split(";")) == sorted(
        archs.split(";")
    )


@given(st.lists(st.text(max_size=12), max_size=8))
def test_any_arguments_are_read(arguments):
    named, others = gpu_compiler.split(arguments)
    assert gpu_compiler.codes_in(named) is not None
    assert len(named) + len(others) in (len(arguments), len(arguments) + 1)
