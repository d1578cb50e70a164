"""The parts of a CUDA file's compile; that they join is the word of test_kernels_once.py."""

import pytest
from targets import CUDA_STABLE, EXTENSION, ROCM_STABLE, sources

from torchwheel.arch.model import parse
from torchwheel.builder.arch_parts import join_parts, parts_of
from torchwheel.builder.recipe import make_recipe
from torchwheel.errors import TorchwheelError


def device_steps(target):
    return make_recipe(EXTENSION, sources(target), target).groups["device"]


def test_a_file_has_a_part_for_each_code_and_one_for_the_host():
    parts = list(parts_of([parse("9.0a"), parse("12.0+PTX")]))
    assert [(part.name, part.form, part.code, part.end) for part in parts] == [
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
    program = tmp_path / "nvcc"
    program.write_text(f"#!/bin/sh\necho '#$ PATH={tmp_path}:/x' >&2\ncat {tmp_path}/calls >&2\n")
    (tmp_path / "fatbinary").write_text(
        f'#!/bin/sh\necho "$@" > {tmp_path}/given\nfor last; do :; done\n: > "${{last#--create=}}"'
    )
    for name in ("nvcc", "fatbinary"):
        (tmp_path / name).chmod(0o755)
    return program


CALL = (
    '#$ fatbinary -64 --compress-mode=size "--image3=kind=elf,sm=90,file=/t/x" --embedded-fatbin=y'
)


@pytest.mark.parametrize(("calls", "found"), [("", 0), (f"{CALL}\n{CALL}\n", 2)])
def test_another_nvcc_is_one_line(nvcc, tmp_path, calls, found):
    (tmp_path / "calls").write_text(calls)
    line = (
        rf"^nvcc --dryrun: expected one call of fatbinary, found {found}; compile without shards$"
    )
    with pytest.raises(TorchwheelError, match=line):
        join_parts([str(nvcc)], "a.cu.o", {}, "objcopy", tmp_path)


def test_an_image_that_is_no_part_is_one_line(nvcc, tmp_path):
    (tmp_path / "calls").write_text(f"{CALL}\n")
    line = (
        r"^nvcc --dryrun: an image of a\.cu\.o, elf for 90, is no part of its compile; compile "
        "without shards$"
    )
    with pytest.raises(TorchwheelError, match=line):
        join_parts([str(nvcc)], "a.cu.o", {}, "objcopy", tmp_path)


def test_without_a_fatbinary_it_is_one_line(nvcc, tmp_path):
    (tmp_path / "calls").write_text(f"{CALL}\n")
    (tmp_path / "fatbinary").unlink()
    with pytest.raises(TorchwheelError, match=r"nvcc: expected `fatbinary` beside it, found none$"):
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
