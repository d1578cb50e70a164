"""Compilers: CUDA's and ROCm's, archs apart, hipify."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from programmaker import program
from targets import CUDA_STABLE, EXTENSION, ROCM_STABLE, sources
from torchwheel.compilers import gpu_compiler
from torchwheel_runtime.arch.model import parse
from torchwheel_runtime.builder.objects import join_parts
from torchwheel_runtime.builder.recipe import Recipe, parts_of
from torchwheel_runtime.builder.sources import hipify
from torchwheel_runtime.errors import TorchwheelError, UsageError

# The compiler that holds the archs of a build.


HARD = ("-gencode", "arch=compute_53,code=sm_53", "-gencode=arch=compute_90,code=sm_90")


def call(archs: str, by: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """The guard with an `echo` for a compiler."""
    command = [*gpu_compiler.guard(sys.executable, archs, by, 20, ["echo", "nvcc"]), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


HARD_CODED = (
    "torchwheel: the project hard-codes the archs 5.3;9.0; expected those of "
    'TORCH_CUDA_ARCH_LIST, 8.0;9.0+PTX; pass --archs "5.3;9.0", or replace them: '
    "build.archs_by: replaced in matrix.yaml, --archs-by replaced of torchwheel build\n"
)
FILE, HIP = ("-c", "a.cu"), ("-c", "a.hip", "--offload-arch=gfx942")
CALLS = {
    "hard-coded ones stop the first file": (
        ("8.0;9.0+PTX", "environment", *FILE, *HARD),
        "",
        HARD_CODED,
    ),
    "the matrix' own are compiled": (
        ("5.3;9.0", "environment", *FILE, *HARD),
        " ".join(["nvcc -c a.cu", *HARD]) + "\n",
        "",
    ),
    "hard-coded ones are replaced on request": (
        ("8.0;9.0+PTX", "replaced", *FILE, "-O3", *HARD, "-o", "a.o"),
        "nvcc -c a.cu -O3 -o a.o -gencode=arch=compute_80,code=sm_80 "
        "-gencode=arch=compute_90,code=sm_90 -gencode=arch=compute_90,code=compute_90\n",
        "",
    ),
    "and so are those of a link, which makes code, too": (
        ("9.0", "replaced", "-shared", "a.o", "-o", "a.so", *HARD),
        "nvcc -shared a.o -o a.so -gencode=arch=compute_90,code=sm_90\n",
        "",
    ),
    "a file may have fewer": (("5.3;8.0;9.0", "declared", *FILE, *HARD), "nvcc -c a.cu ", ""),
    "and no others": (
        ("8.0;9.0", "declared", *FILE, *HARD),
        "",
        "torchwheel: the project compiles for 5.3, which the arch list 8.0",
    ),
    "AMD's are replaced": (
        ("gfx90a;gfx1100", "replaced", *HIP, "-o", "a.o"),
        "nvcc -c a.hip -o a.o --offload-arch=gfx90a --offload-arch=gfx1100\n",
        "",
    ),
    "AMD's others": (("gfx90a", "declared", *HIP), "", "torchwheel: the project compiles for gfx"),
    "AMD's fewer": (("gfx90a;gfx942", "declared", *HIP), "nvcc -c a.hip ", ""),
}


EMPTY = "-x c -c /dev/null -o "


@pytest.mark.parametrize(
    ("words", "planned"),
    [
        ("-c csrc/a.cu -o build/a.o -gencode arch=compute_53,code=sm_53", f"{EMPTY}build/a.o"),
        ("-I. -c PROJECT/csrc/a.cpp -o a.o", f"{EMPTY}a.o"),
        ("-O2 csrc/../a.c -c", f"{EMPTY}a.o"),
        # A project, CMake and Meson try compilers, and what is linked is no step.
        ("-c ../tried.c", None),
        ("-c build/CMakeFiles/CMakeScratch/t/x.cxx", None),
        ("-c build/meson-private/tmp1/testfile.c", None),
        ("csrc/a.o -o a.so", None),
        ("-M csrc/a.cpp", None),
    ],
)
def test_a_plan_compiles_no_file_of_the_project(tmp_path, words, planned):
    words = words.replace("PROJECT", str(tmp_path))
    command = [*gpu_compiler.guard(sys.executable, "5.3", "declared", 17, ["echo"]), *words.split()]
    for environ, expected in (({gpu_compiler.PLANNED: str(tmp_path)}, planned), ({}, None)):
        done = subprocess.check_output(command, cwd=tmp_path, env=environ, text=True)
        assert done == f"{expected or words}\n"


@pytest.mark.parametrize("compiler", ["gcc", "g++"])
def test_an_empty_object_can_be_linked(tmp_path, compiler):
    guard = gpu_compiler.guard(sys.executable, "", "", 17, [compiler])
    environ = {**os.environ, gpu_compiler.PLANNED: str(tmp_path)}
    (tmp_path / "a.c").write_text("#error it was compiled")
    for words in (["-c", "a.c", "-o", "a.o"], ["-shared", "a.o", "-o", "a.so"]):
        subprocess.run([*guard, *words], cwd=tmp_path, env=environ, check=True)


@pytest.mark.parametrize(("arguments", "output", "errors"), CALLS.values(), ids=CALLS)
def test_the_archs_of_a_call(arguments, output, errors):
    done = call(*arguments)
    assert (done.returncode, bool(done.stdout), bool(done.stderr)) == (
        bool(errors),
        bool(output),
        bool(errors),
    )
    for found, expected in ((done.stdout, output), (done.stderr, errors)):
        assert found == expected if expected.endswith("\n") else found.startswith(expected)


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


@pytest.mark.parametrize(
    ("given", "compiled"),
    [
        ("-std=c++17", "-std=c++20"),
        ("--std=gnu++14", "--std=gnu++20"),
        ("--std c++17", "--std c++20"),
        ("-Xcompiler -Wall,-std=c++1z", "-Xcompiler -Wall,-std=c++20"),
        ("-std=c++98 -std=c++0x", "-std=c++20 -std=c++20"),
        # What is not older stays, and C has standards of its own.
        ("-std=c++2a", "-std=c++2a"),
        ("-std=c++23", "-std=c++23"),
        ("-std=c11", "-std=c11"),
        ("-DFLAGS=-std=c++17x -x c++", "-DFLAGS=-std=c++17x -x c++"),
    ],
)
def test_an_older_standard_than_torchs_headers_need_is_raised(tmp_path, given, compiled):
    listed = tmp_path / "includes.rsp"
    listed.write_text("-isystem /env/torch/include")
    for includes in ("-I/env/torch/include/x", f"--options-file {listed}", f"@{listed}"):
        words = f"-c a.cu {includes} {given}".split()
        assert call("9.0", "environment", *words).stdout == f"nvcc -c a.cu {includes} {compiled}\n"
    for others in ("-I/usr/include", "@/not/there", "--options-file"):
        words = f"{given} {others}".split()
        assert call("9.0", "environment", *words).stdout == f"nvcc {given} {others}\n"


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
    assert len(gpu_compiler.raise_standard([*arguments, "-I/torch/include"], 20)) > 0
    named, others = gpu_compiler.split(arguments)
    assert gpu_compiler.codes_in(named) is not None
    assert len(named) + len(others) in (len(arguments), len(arguments) + 1)


# The parts of a CUDA file's compile; that they join is the word of test_kernels_once.py.


def device_steps(target):
    return Recipe(EXTENSION, sources(target), target).groups["device"]


def test_a_file_has_a_part_for_each_code_and_one_for_the_host():
    assert list(parts_of([parse("9.0a"), parse("12.0+PTX")])) == [
        ("9.0a", "-cubin", "-gencode=arch=compute_90a,code=sm_90a", ".sm_90a.cubin"),
        ("12.0", "-cubin", "-gencode=arch=compute_120,code=sm_120", ".sm_120.cubin"),
        ("12.0, PTX", "-ptx", "-gencode=arch=compute_120,code=compute_120", ".compute_120.ptx"),
        ("the host", "-c", "-gencode=arch=compute_90a,code=compute_90a", ".host.o"),
    ]


def test_a_part_is_compiled_as_the_whole_but_for_its_arch_and_form():
    whole, _ = device_steps(CUDA_STABLE)
    for step in whole.parts:
        part = step.output.removeprefix("obj/a.cu")
        assert step.label.startswith(f"{whole.label} for ")
        own = [word for word in step.command if part in word or word.startswith("-gencode=")]
        assert len(own) == 3  # the depfile, the arch, the output
        assert step.inputs == whole.inputs
        rest = [word for word in step.command if word not in (*own, "-cubin", "-ptx", "-c")]
        assert set(rest) < set(whole.command)


def test_a_file_for_one_arch_and_hip_are_not_divided():
    assert [len(step.parts) for step in device_steps(CUDA_STABLE)] == [4, 0]
    assert [step.parts for step in device_steps(ROCM_STABLE)] == [(), ()]


@pytest.fixture
def nvcc(tmp_path):
    """An nvcc that prints what is in the file `calls`, with a fatbinary beside it."""
    write_last = ("for last; do :; done", ': > "${last#--create=}"')
    program(tmp_path / "fatbinary", f'echo "$@" > {tmp_path}/given', *write_last)
    lines = (f"echo '#$ PATH={tmp_path}:/x' >&2", f"cat {tmp_path}/calls >&2")
    return program(tmp_path / "nvcc", *lines)


CALL = (
    '#$ fatbinary -64 --compress-mode=size "--image3=kind=elf,sm=90,file=/t/x" --embedded-fatbin=y'
)


JOIN_FAULTS = {
    "no call": ("", r"nvcc --dryrun: expected one call of fatbinary, found 0; compile without s"),
    "two calls": (
        f"{CALL}\n{CALL}\n",
        r"nvcc --dryrun: expected one call of fatbinary, found 2; compile without shards$",
    ),
    "an image that is no part": (
        f"{CALL}\n",
        r"nvcc --dryrun: an image of a\.cu\.o, elf for 90, is no part of its compile; compile "
        "without shards$",
    ),
    "no fatbinary": (f"{CALL}\n", "nvcc: expected `fatbinary` beside it, found none$"),
}


@pytest.mark.parametrize("case", JOIN_FAULTS)
def test_another_nvcc_is_one_line(nvcc, tmp_path, case):
    calls, line = JOIN_FAULTS[case]
    (tmp_path / "calls").write_text(calls)
    if case == "no fatbinary":
        (tmp_path / "fatbinary").unlink()
    with pytest.raises(TorchwheelError, match=line):
        join_parts([str(nvcc)], "a.cu.o", {}, "objcopy", tmp_path)


def test_fatbinary_gets_its_own_options_and_our_files(nvcc, tmp_path):
    images = '"--image3=kind=elf,sm=90,file=/t/x" "--image3=kind=ptx,sm=90,file=/t/y"'
    line = f'#$ fatbinary -64 "--cicc-cmdline=-a -b" {images} --embedded-fatbin=/t/c > /t/o 2>/t/e'
    (tmp_path / "calls").write_text(f"#$ cicc x\n{line}\n#$ g++ y\n")
    names = ("a.cu.sm_90.cubin", "a.cu.compute_90.ptx", "a.cu.host.o")
    parts = {name: tmp_path / name for name in names}
    join_parts(
        [str(nvcc)], "obj/a.cu.o", {f"obj/{k}": v for k, v in parts.items()}, "true", tmp_path
    )
    assert (tmp_path / "given").read_text().split() == [
        "-64",
        *("--cicc-cmdline=-a", "-b"),
        f"--image3=kind=elf,sm=90,file={parts[names[0]]}",
        f"--image3=kind=ptx,sm=90,file={parts[names[1]]}",
        f"--create={tmp_path}/a.cu.o.fatbin",
    ]


# Calls of hipify that fail before torch has anything to do.


PYTHON = Path(sys.executable)


@pytest.fixture
def project(tmp_path):
    return Path(shutil.copytree(Path(__file__).parent / "cuda_project", tmp_path / "project"))


@pytest.mark.parametrize(("file", "says"), [("csrc/no.cu", "not found"), ("../x.cu", "leaves")])
def test_a_source_that_is_not_there_is_one_line(project, tmp_path, file, says):
    (tmp_path / "x.cu").touch()
    with pytest.raises(TorchwheelError, match=says):
        hipify(project, [file], tmp_path / "out", python=PYTHON)
    assert not (tmp_path / "out").exists()


def test_a_python_without_torch_is_one_line(project, tmp_path):
    python = program(tmp_path / "python", f'exec {PYTHON} -S -I "$@"')
    with pytest.raises(TorchwheelError, match="No module named 'torch'"):
        hipify(project, ["csrc/scale.cu"], tmp_path / "out", python=python)
    with pytest.raises(TorchwheelError, match="does not start"):
        hipify(project, ["csrc/scale.cu"], tmp_path / "out", python=tmp_path / "nonesuch")


def test_no_source_outside_is_a_wrong_call(project, tmp_path):
    with pytest.raises(UsageError, match="a source to translate expected"):
        hipify(project, ["csrc"], tmp_path / "out", python=PYTHON)
