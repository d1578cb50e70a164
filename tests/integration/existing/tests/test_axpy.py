import axpy
import pytest
import torch

DEVICES = [
    "cpu",
    pytest.param(
        "cuda",
        marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU that torch can use"),
    ),
]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", [(0,), (1001,), (33, 65)])
def test_axpy(device, shape):
    x, y = torch.randn(shape, device=device), torch.randn(shape, device=device)
    torch.testing.assert_close(axpy.axpy(0.5, x, y), 0.5 * x + y)
    torch.testing.assert_close(axpy.axpy(0.5, x.T, y.T), 0.5 * x.T + y.T)
