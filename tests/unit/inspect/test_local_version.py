"""What the local versions of other people's wheels say of torch and its backend."""

import pytest
from packaging.version import Version

from torchwheel.inspect.local_version import LocalVersion, read_local_version

SAYS = {
    # NATTEN: three digits are X.Y.Z, four are X.YY.Z
    "torch290cu128": LocalVersion("2.9", cuda="12.8"),
    "torch2100cu128": LocalVersion("2.10", cuda="12.8"),
    "torch2110cu128": LocalVersion("2.11", cuda="12.8"),
    "torch210cu121": LocalVersion("2.1", cuda="12.1"),
    "torch251": LocalVersion("2.5"),
    # 2.1.0 was never built for it
    "torch210cu128": LocalVersion("2.10", cuda="12.8"),
    # PyG, torchsparse
    "pt26cu124": LocalVersion("2.6", cuda="12.4"),
    "pt210cu128": LocalVersion("2.10", cuda="12.8"),
    "pt201cu118": LocalVersion("2.0", cuda="11.8"),
    "torch20cu118": LocalVersion("2.0", cuda="11.8"),
    "pt211cu130": LocalVersion("2.11", cuda="13.0"),
    "pt26cpu": LocalVersion("2.6", cpu=True),
    # flash-attention, SageAttention, detectron2 after a commit, ExLlamaV2, PyTorch3D
    "cu12torch2.6cxx11abiFALSE": LocalVersion("2.6", cuda="12", new_strings=False),
    "cu12torch2.10cxx11abiTRUE": LocalVersion("2.10", cuda="12", new_strings=True),
    "cu128torch2.9.0andhigher.post4": LocalVersion("2.9", or_later=True, cuda="12.8"),
    "18f6958pt2.6.0cu124": LocalVersion("2.6", cuda="12.4"),
    "cu128.torch2.8.0": LocalVersion("2.8", cuda="12.8"),
    "pyt240cu121": LocalVersion("2.4", cuda="12.1"),
    "pytorch2.6": LocalVersion("2.6"),
    "pt231cu121": LocalVersion("2.3", cuda="12.1"),
    "pt2100cu128": LocalVersion("2.10", cuda="12.8"),
    "torch-2.6-cuda-12.4": LocalVersion("2.6", cuda="12.4"),
    "torch2.5.cuda12.4": LocalVersion("2.5", cuda="12.4"),
    "20250909.cu128torch280cxx11abitrue.9b5b8c": LocalVersion("2.8", cuda="12.8", new_strings=True),
    # Torch's own for the strings since GCC 5; AMD's; CUDA of two digits, and with a patch
    "cpu.cxx11.abi": LocalVersion(cpu=True, new_strings=True),
    "rocm6.2.4.git1ded221d": LocalVersion(rocm="6.2"),
    "rocm7.11.0a20260121": LocalVersion(rocm="7.11"),
    "cu92": LocalVersion(cuda="9.2"),
    "cu1281": LocalVersion(cuda="12.8"),
    # fusedops, mjun0812's flash-attention
    "cu124torch2.6": LocalVersion("2.6", cuda="12.4"),
    "cputorch2.6": LocalVersion("2.6", cpu=True),
    "rocm6.2torch2.6": LocalVersion("2.6", rocm="6.2"),
    "torch2.6.0.cu124": LocalVersion("2.6", cuda="12.4"),
    # xformers, torchao
    "cu130": LocalVersion(cuda="13.0"),
    "cuda12.4": LocalVersion(cuda="12.4"),
    "rocm624": LocalVersion(rocm="6.2"),
    "rocm6": LocalVersion(rocm="6"),
    # About torch, and nobody knows what
    "torchnightly.cu130": LocalVersion(unread="torchnightly", cuda="13.0"),
    "torch2": LocalVersion(unread="torch2"),
    "pt2": LocalVersion(unread="pt2"),
    "torch21000": LocalVersion(unread="torch21000"),
    # A backend is known or unknown, never another
    "xpu": LocalVersion(other="xpu"),
    "torch2.9xpu": LocalVersion("2.9", other="xpu"),
    "gaudi000": LocalVersion(other="hpu"),
    "neuron213": LocalVersion(other="neuron"),
    "das1.1.abi0.dtk2404.torch2.1": LocalVersion("2.1", other="dtk"),
    "rocmsdk20260116": LocalVersion(rocm=""),
    "hip6.4torch2.8": LocalVersion("2.8", rocm=""),
    "cuda": LocalVersion(cuda=""),
    "cpu": LocalVersion(cpu=True),
    "cpu.cu126": LocalVersion(cuda="12.6"),
    # Nothing
    "gptq2": LocalVersion(),
    "g3f2a91c": LocalVersion(),
    "ubuntu1": LocalVersion(),
    "focus124": LocalVersion(),
}


@pytest.mark.parametrize("local", SAYS)
def test_a_local_version(local):
    assert read_local_version(Version(f"1+{local}")) == SAYS[local]


def test_without_a_local_part():
    assert read_local_version(Version("1.0.0")) == read_local_version(None) == LocalVersion()
