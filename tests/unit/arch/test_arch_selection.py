import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchwheel.arch.model import parse
from torchwheel.arch.runs import machine_code_runs_on, runs_on
from torchwheel.arch.selection import archs_for_gpus, merge_archs, select_compilable
from torchwheel.arch.toolkit_releases import ToolkitRelease, arch_names, archs_by_release
from torchwheel.errors import UsageError

CUDA = [parse(name) for name in arch_names("cuda")]
GPUS = [arch for arch in CUDA if not arch.suffix]
PROCESSORS = [arch for arch in map(parse, arch_names("rocm")) if not arch.generic]
CUDAS = st.sampled_from([ToolkitRelease("cuda", release) for release in archs_by_release("cuda")])
ROCMS = st.sampled_from([ToolkitRelease("rocm", release) for release in archs_by_release("rocm")])


def parsed(text):
    return [parse(part) for part in text.split()]


def written(found):
    return " ".join(map(str, found))


@pytest.mark.parametrize(
    ("archs", "result"),
    [
        ("9.0 8.0", "8.0 9.0"),
        ("9.0 9.0+PTX 9.0", "9.0+PTX"),
        ("12.0+PTX 9.0a 9.0", "9.0 9.0a 12.0+PTX"),
        ("9.0a+PTX 9.0a 9.0", "9.0 9.0a+PTX"),
        ("gfx942 gfx90a gfx942", "gfx90a gfx942"),
        ("", ""),
    ],
)
def test_each_once_and_in_order(archs, result):
    assert written(merge_archs(parsed(archs))) == result


def test_what_a_compiler_cannot_is_left_out_with_the_reason():
    found = select_compilable(parsed("6.1 8.0 9.0a 12.0+PTX 10.0f"), ToolkitRelease("cuda", "12.4"))
    assert written(found.archs) == "6.1 8.0 9.0a"
    assert list(map(str, found.left_out)) == [
        "10.0f: CUDA 12.4 cannot compile for it; CUDA 12.9 and later can",
        "12.0+PTX: CUDA 12.4 cannot compile for it; CUDA 12.8 and later can",
    ]
    dropped = select_compilable(parsed("6.1 8.0"), ToolkitRelease("cuda", "13.0.88"))
    assert list(map(str, dropped.left_out)) == [
        "6.1: CUDA 13.0.88 cannot compile for it; CUDA 11.8 to 12.9 can"
    ]


def test_a_build_that_must_have_all_says_what_it_has_not():
    compiler = ToolkitRelease("cuda", "12.4")
    assert (
        written(select_compilable(parsed("8.0 9.0+PTX"), compiler).require_all("HERE"))
        == "8.0 9.0+PTX"
    )
    with pytest.raises(UsageError, match=r"^HERE: 10\.0: CUDA 12\.4 cannot .*; 12\.0: CUDA 12\.4"):
        select_compilable(parsed("8.0 10.0 12.0"), compiler).require_all("HERE")


@given(st.lists(st.sampled_from(CUDA)), CUDAS)
def test_nothing_is_lost(listed, compiler):
    found = select_compilable(listed, compiler)
    assert {a.arch for a in found.left_out} | set(found.archs) == set(listed)
    assert {a.name for a in found.archs} <= {a.name for a in compiler.archs}
    assert not {a.arch.name for a in found.left_out} & {a.name for a in compiler.archs}


@pytest.mark.parametrize(
    ("release", "gpus", "archs"),
    [
        # Known: machine code alone.
        ("13.0", "9.0", "9.0"),
        ("13.0", "8.0 9.0 12.1", "8.0 9.0 12.1"),
        # Newer, of a major that is known: an older minor's machine code.
        ("12.8", "10.3", "10.0"),
        ("12.8", "12.1", "12.0"),
        ("12.4", "8.8", "8.6"),
        # Newer than everything: the newest PTX.
        ("12.4", "12.0", "9.0+PTX"),
        ("12.4", "9.0 12.0", "9.0+PTX"),
        ("12.4", "8.0 10.0", "8.0 9.0+PTX"),
        ("13.5", "14.0", "12.1+PTX"),
        ("14.0", "14.0", "12.1+PTX"),
        # Thor has two numbers; the integrated Orin runs no other Ampere's machine code.
        ("12.9", "11.0", "10.1"),
        ("13.0", "10.1", "11.0"),
        ("12.6", "11.0", "9.0+PTX"),
        ("11.8", "8.7", "8.7"),
    ],
)
def test_code_for_nvidias_gpus(release, gpus, archs):
    found = archs_for_gpus(parsed(gpus), ToolkitRelease("cuda", release))
    assert (written(found.archs), found.left_out) == (archs, ())


@pytest.mark.parametrize(
    ("release", "gpus", "archs"),
    [
        ("6.4", "gfx90a gfx942", "gfx90a gfx942"),
        ("6.4", "gfx90a:sramecc+:xnack-", "gfx90a"),
        ("5.7", "gfx942", "gfx942"),
    ],
)
def test_code_for_amds_gpus(release, gpus, archs):
    found = archs_for_gpus(parsed(gpus), ToolkitRelease("rocm", release))
    assert (written(found.archs), found.left_out) == (archs, ())


def test_a_gpu_older_than_the_compiler_is_left_out():
    found = archs_for_gpus(parsed("6.1 9.0"), ToolkitRelease("cuda", "13.0"))
    assert written(found.archs) == "9.0"
    assert written(found.left_out) == (
        "6.1: CUDA 13.0 cannot compile for it; CUDA 11.8 to 12.9 can"
    )
    found = archs_for_gpus(parsed("gfx1100 gfx803"), ToolkitRelease("rocm", "7.2"))
    assert written(found.left_out) == (
        "gfx803: ROCm 7.2 cannot compile for it; none that is known can"
    )


@given(st.sets(st.sampled_from(GPUS)), CUDAS)
def test_every_gpu_has_code_or_a_reason(gpus, compiler):
    found = archs_for_gpus(gpus, compiler)
    out = {left.arch for left in found.left_out}
    assert out <= gpus
    for gpu in gpus - out:
        assert any(runs_on(arch, gpu) for arch in found.archs)
    for gpu in out:
        assert not any(runs_on(arch, gpu) for arch in compiler.archs)
    # PTX is for want of machine code alone.
    plain = [arch for arch in compiler.archs if not arch.suffix]
    direct = all(any(machine_code_runs_on(arch, gpu) for arch in plain) for gpu in gpus - out)
    assert any(arch.ptx for arch in found.archs) != direct
    assert select_compilable(found.archs, compiler).archs == found.archs


@given(st.sets(st.sampled_from(PROCESSORS)), ROCMS)
def test_every_processor_has_its_own_code_or_a_reason(gpus, compiler):
    found = archs_for_gpus(gpus, compiler)
    out = {left.arch for left in found.left_out}
    assert {gpu.name for gpu in gpus - out if gpu in compiler.archs} <= {
        a.name for a in found.archs
    }
    assert all(any(runs_on(arch, gpu) for arch in found.archs) for gpu in gpus - out)
