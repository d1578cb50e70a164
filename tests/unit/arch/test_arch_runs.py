import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchwheel.arch.model import CudaArch, RocmArch, parse
from torchwheel.arch.runs import machine_code_runs_on, ptx_runs_on, runs_on
from torchwheel.arch.toolkit_releases import arch_names

CUDA = [parse(name) for name in arch_names("cuda")]
DEVICES = [arch for arch in CUDA if not arch.suffix]
ROCM = [parse(name) for name in arch_names("rocm")]
PROCESSORS = [arch for arch in ROCM if not arch.generic]


def on(text):
    """The NVIDIA GPUs that code for an arch runs on."""
    return [str(device) for device in DEVICES if runs_on(parse(text), device)]


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


@pytest.mark.parametrize(
    ("arch", "processors"),
    [
        ("gfx9-generic", "gfx900 gfx902 gfx904 gfx906 gfx909 gfx90c"),
        ("gfx9-4-generic", "gfx942 gfx950"),
        ("gfx12-generic", "gfx1200 gfx1201"),
    ],
)
def test_generic_targets(arch, processors):
    code = parse(arch)
    assert [str(gpu) for gpu in PROCESSORS if runs_on(code, gpu)] == processors.split()


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
