"""The GPUs that torch finds in a build, and in no other process."""

import sys
import types

import pytest

from torchwheel.compilers import pretended_gpu


@pytest.mark.parametrize(
    ("archs", "found"),
    [
        ("7.5;9.0a;12.0+PTX", [(12, 0, ""), (9, 0, ""), (7, 5, "")]),
        ("10.0 10.0f 10.3", [(10, 3, ""), (10, 0, "")]),
        ("gfx90a:xnack-;gfx942;gfx1100",
         [(11, 0, "gfx1100"), (9, 4, "gfx942"), (9, 0, "gfx90a:xnack-")]),
        ("native Ampere", []),
        ("", []),
    ],
)  # fmt: skip
def test_a_gpu_of_each_arch_the_newest_first(archs, found):
    assert pretended_gpu.capabilities(archs) == found


@pytest.mark.parametrize(
    ("hip", "environ", "device", "expected"),
    [
        (None, {"TORCH_CUDA_ARCH_LIST": "8.0;9.0"}, None, (9, 0, "")),
        (None, {"TORCH_CUDA_ARCH_LIST": "8.0;9.0"}, 1, (8, 0, "")),
        (None, {"TORCH_CUDA_ARCH_LIST": "8.0;9.0"}, "cuda:1", (8, 0, "")),
        ("7.2", {"PYTORCH_ROCM_ARCH": "gfx942"}, "cuda", (9, 4, "gfx942")),
        (None, {"PYTORCH_ROCM_ARCH": "gfx942"}, None, None),
    ],
)
def test_the_answers(monkeypatch, hip, environ, device, expected):
    cuda = types.SimpleNamespace(is_available=lambda: False)
    of_any = types.SimpleNamespace(is_available=lambda: False)
    version = types.SimpleNamespace(hip=hip)
    torch = types.SimpleNamespace(cuda=cuda, accelerator=of_any, version=version)
    monkeypatch.setitem(sys.modules, "torch", torch)
    for name in ("TORCH_CUDA_ARCH_LIST", "PYTORCH_ROCM_ARCH"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    pretended_gpu.answer()
    assert cuda.is_available() == of_any.is_available() == (expected is not None)
    if expected:
        found = cuda.get_device_properties(device)
        assert (found.major, found.minor, found.gcnArchName) == expected
        assert cuda.get_device_capability(device) == expected[:2]
        assert cuda.get_device_name(device) == found.name
        assert cuda.current_device() == 0
