"""Which code runs on which GPU."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchwheel_runtime.arch.lists import archs_for_gpus, merge_archs, select_compilable
from torchwheel_runtime.arch.model import CudaArch, RocmArch, parse
from torchwheel_runtime.arch.releases import ToolkitRelease, arch_names, archs_by_release
from torchwheel_runtime.arch.runs import machine_code_runs_on, ptx_runs_on, runs_on
from torchwheel_runtime.errors import UsageError

CUDA = [parse(name) for name in arch_names("cuda")]
DEVICES = [arch for arch in CUDA if not arch.suffix]
ROCM = [parse(name) for name in arch_names("rocm")]
PROCESSORS = [arch for arch in ROCM if not arch.generic]


def on(text):
    """The GPUs that code for an arch runs on."""
    return [str(device) for device in [*DEVICES, *PROCESSORS] if runs_on(parse(text), device)]


@pytest.mark.parametrize(
    ("arch", "gpus"),
    [
        # Machine code: the major, from the minor on; an integrated GPU's is its own.
        ("7.0", "7.0 7.5"),
        ("7.2", "7.2"),
        ("8.0", "8.0 8.6 8.8 8.9"),
        ("8.7", "8.7"),
        ("8.9", "8.9"),
        ("9.0", "9.0"),
        ("10.0", "10.0 10.3 10.7"),
        ("10.3", "10.3 10.7"),
        ("12.0", "12.0 12.1"),
        ("12.1", "12.1"),
        # Thor's number was 10.1 before CUDA 13; it is not of 10.0's family.
        ("10.1", "10.1 11.0"),
        ("11.0", "10.1 11.0"),
        ("10.1f", "10.1 11.0"),
        # A suffix: this chip, or its family from the minor on.
        ("9.0a", "9.0"),
        ("10.0a", "10.0"),
        ("10.3a+PTX", "10.3"),
        ("10.0f", "10.0 10.3 10.7"),
        ("10.3f+PTX", "10.3 10.7"),
        ("12.0f", "12.0 12.1"),
        ("12.0a", "12.0"),
        # PTX: whatever is as new.
        ("9.0+PTX", "9.0 10.0 10.1 10.3 10.7 11.0 12.0 12.1"),
        ("8.6+PTX", "8.6 8.7 8.8 8.9 9.0 10.0 10.1 10.3 10.7 11.0 12.0 12.1"),
        ("12.1+PTX", "12.1"),
        # A generic target: the processors that it is for.
        ("gfx9-generic", "gfx900 gfx902 gfx904 gfx906 gfx909 gfx90c"),
        ("gfx9-4-generic", "gfx942 gfx950"),
        ("gfx12-generic", "gfx1200 gfx1201"),
    ],
)
def test_the_gpus_that_run_an_arch(arch, gpus):
    assert on(arch) == gpus.split()


def test_torch_has_the_same_table():
    """Its own figures of which machine code runs where; it knows no PTX and not all archs."""
    cuda = pytest.importorskip("torch.cuda", reason="torch is not installed")
    table = getattr(cuda, "DEVICE_REQUIREMENT", None)
    if table is None:
        pytest.skip("this torch has no such table")
    for code, devices in table.items():
        arch = CudaArch(*divmod(code, 10))
        for device in DEVICES:
            # A driver that calls Thor 10.1 is older than code for 11.0.
            if (str(arch), str(device)) != ("11.0", "10.1"):
                expected = device.major * 10 + device.minor in devices
                assert machine_code_runs_on(arch, device) == expected, (str(arch), str(device))


@given(st.sampled_from(CUDA), st.sampled_from(DEVICES))
def test_ptx_adds_and_takes_nothing(arch, device):
    with_ptx = dataclasses.replace(arch, ptx=True)
    assert runs_on(arch, device) == machine_code_runs_on(arch, device)
    either = machine_code_runs_on(arch, device) or ptx_runs_on(arch, device)
    assert runs_on(with_ptx, device) == either
    assert machine_code_runs_on(with_ptx, device) == machine_code_runs_on(arch, device)


@given(st.sampled_from(DEVICES))
def test_a_gpu_runs_its_own_code(device):
    for suffix in ("", "a", "f"):
        own = dataclasses.replace(device, suffix=suffix)
        assert machine_code_runs_on(own, device)
        assert ptx_runs_on(own, device)


@given(st.sampled_from(DEVICES), st.sampled_from(DEVICES))
def test_a_suffix_only_narrows(arch, device):
    family, alone = (dataclasses.replace(arch, suffix=suffix, ptx=True) for suffix in "fa")
    plain = dataclasses.replace(arch, ptx=True)
    assert runs_on(alone, device) <= runs_on(family, device) <= runs_on(plain, device)


@given(st.sampled_from(PROCESSORS), st.sampled_from(PROCESSORS))
def test_an_amd_processor_runs_its_own_code_alone(arch, device):
    assert runs_on(arch, device) == (arch == device)


def test_every_generic_target_of_a_compiler_has_its_processors():
    for arch in ROCM:
        assert not arch.generic or any(runs_on(arch, gpu) for gpu in PROCESSORS), str(arch)


@pytest.mark.parametrize(
    ("arch", "gpu", "runs"),
    [
        ("gfx90a", "gfx90a:sramecc+:xnack-", True),
        ("gfx90a:xnack-", "gfx90a:sramecc+:xnack-", True),
        ("gfx90a:xnack+", "gfx90a:sramecc+:xnack-", False),
        ("gfx90a:sramecc-:xnack-", "gfx90a:sramecc+:xnack-", False),
        ("gfx90a:xnack+", "gfx90a", True),  # the kernel's table does not tell
        ("gfx9-4-generic:xnack+", "gfx942:sramecc+:xnack-", False),
        ("gfx9-4-generic:xnack-", "gfx942:sramecc+:xnack-", True),
    ],
)
def test_features(arch, gpu, runs):
    assert runs_on(parse(arch), parse(gpu)) is runs


def test_code_of_one_maker_runs_on_no_gpu_of_another():
    nvidia, amd = CudaArch(9, 0, ptx=True), RocmArch(9, 0, 10)
    for relation in (runs_on, machine_code_runs_on, ptx_runs_on):
        assert not relation(nvidia, amd)
        assert not relation(amd, nvidia)
    assert not ptx_runs_on(amd, amd)


CUDAS = st.sampled_from([ToolkitRelease("cuda", release) for release in archs_by_release("cuda")])
ROCMS = st.sampled_from([ToolkitRelease("rocm", release) for release in archs_by_release("rocm")])


def parsed(text):
    return [parse(part) for part in text.split()]


def written(found):
    return " ".join(map(str, found))


def left_out_of(found):
    return {parse(text.split(": ")[0]) for text in found.left_out}


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
    assert found.left_out == (
        "10.0f: CUDA 12.4 cannot compile for it; CUDA 12.9 and later can",
        "12.0+PTX: CUDA 12.4 cannot compile for it; CUDA 12.8 and later can",
    )
    dropped = select_compilable(parsed("6.1 8.0"), ToolkitRelease("cuda", "13.0.88"))
    assert dropped.left_out == ("6.1: CUDA 13.0.88 cannot compile for it; CUDA 11.8 to 12.9 can",)


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
    left_out = left_out_of(found)
    assert left_out | set(found.archs) == set(listed)
    assert {a.name for a in found.archs} <= {a.name for a in compiler.archs}
    assert not {a.name for a in left_out} & {a.name for a in compiler.archs}


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
        ("6.4", "gfx90a gfx942", "gfx90a gfx942"),
        ("6.4", "gfx90a:sramecc+:xnack-", "gfx90a"),
        ("5.7", "gfx942", "gfx942"),
    ],
)
def test_code_for_gpus(release, gpus, archs):
    backend = "rocm" if gpus.startswith("gfx") else "cuda"
    found = archs_for_gpus(parsed(gpus), ToolkitRelease(backend, release))
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


@given(st.sets(st.sampled_from(DEVICES)), CUDAS)
def test_every_gpu_has_code_or_a_reason(gpus, compiler):
    found = archs_for_gpus(gpus, compiler)
    out = left_out_of(found)
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
    out = left_out_of(found)
    assert {gpu.name for gpu in gpus - out if gpu in compiler.archs} <= {
        a.name for a in found.archs
    }
    assert all(any(runs_on(arch, gpu) for arch in found.archs) for gpu in gpus - out)
