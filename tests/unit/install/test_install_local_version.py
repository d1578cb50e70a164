"""What the local versions of other people's wheels say."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from torchwheel.index.note import Kernels, WheelNeeds
from torchwheel.inspect.local_version import LocalVersion, read_local_version
from torchwheel.install.page import needs_of_name


def aten(torch, kernels=(), **more):
    return WheelNeeds("aten", (f"=={torch}.*",), kernels, **more)


CU124, CU13, CU12 = Kernels("cuda", "12.4"), Kernels("cuda", "13.0"), Kernels("cuda", "12")


@pytest.mark.parametrize(
    ("local", "needs"),
    [
        ("cu124torch2.6", aten("2.6", (CU124,))),  # fusedops, mjun0812's flash-attn
        ("cu12torch2.6cxx11abiFALSE", aten("2.6", (CU12,), old_abi=True)),  # Dao-AILab
        ("cu12torch2.10cxx11abiTRUE", aten("2.10", (CU12,), old_abi=False)),
        ("pt26cu124", aten("2.6", (CU124,))),  # PyG
        ("pt211cu130", aten("2.11", (CU13,))),
        ("pt26cpu", aten("2.6", for_cpu=True)),
        ("torch2.6.0.cu124", aten("2.6", (CU124,))),
        ("torch251", aten("2.5")),
        ("cu130", WheelNeeds(kernels=(CU13,))),  # xformers, torchao
        ("cuda12.4", WheelNeeds(kernels=(CU124,))),
        ("cpu", WheelNeeds(for_cpu=True)),
        ("cputorch2.6", aten("2.6", for_cpu=True)),
        ("rocm6.2torch2.6", aten("2.6", (Kernels("rocm", "6.2"),))),
        ("rocm624", WheelNeeds(kernels=(Kernels("rocm", "6.2"),))),
        ("rocm6", WheelNeeds(kernels=(Kernels("rocm", "6"),))),
        ("g3f2a91c", WheelNeeds()),
        ("ubuntu1", WheelNeeds()),
        ("focus124", WheelNeeds()),
    ],
)
def test_a_name(local, needs):
    assert needs_of_name(Version(f"1.0.0+{local}")) == needs


def test_a_version_for_a_gpu_is_not_for_cpus():
    assert read_local_version(Version("1+cpu.cu126")) == LocalVersion(cuda="12.6")
    assert read_local_version(None) == LocalVersion()


def test_a_version_without_a_local_part_says_nothing():
    assert needs_of_name(Version("1.0.0")) == WheelNeeds()


@given(st.from_regex(r"[a-z0-9]{1,20}(\.[a-z0-9]{1,9}){0,3}", fullmatch=True))
def test_no_name_breaks_it(local):
    needs_of_name(Version(f"1+{local}"))
