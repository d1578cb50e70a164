import pytest
import tiny
import torch

DEVICES = [
    "cpu",
    pytest.param(
        "cuda",
        marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU that torch can use"),
    ),
]


@pytest.mark.parametrize("device", DEVICES)
def test_scale(device):
    x = torch.randn(1001, device=device)
    assert torch.equal(tiny.scale(x, 3.0), x * 3.0)


def test_the_library_registered_its_kernel():
    native = torch._C._dispatch_has_kernel_for_dispatch_key("tiny::scale", "CUDA")
    assert native == bool(tiny.LIBRARIES)
