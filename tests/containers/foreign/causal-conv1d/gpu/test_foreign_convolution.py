"""causal-conv1d's operators on a GPU, against float64 on the CPU.

torchwheel smoke --here --tests tests/containers/foreign/causal-conv1d/gpu WHEEL
"""

import causal_conv1d
import pytest
import torch
from torch.nn import functional as F  # noqa: N812

BATCH, CHANNELS, LENGTH = 3, 264, 1000
# Some roundings of the type, over the largest expected value.
BOUNDS = {torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 2e-2}

requires_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


def error(found, expected):
    assert found.is_cuda
    difference = found.double().cpu() - expected
    return (difference.abs().max() / expected.abs().max()).item()


@pytest.fixture(params=BOUNDS, ids=str)
def tensors(request):
    """The input, the weight and the bias, and the same in float64 on the CPU."""
    torch.manual_seed(0)
    sizes = ((BATCH, CHANNELS, LENGTH), (CHANNELS, 4), (CHANNELS,))
    made = [torch.randn(size, device="cuda").to(request.param) for size in sizes]
    return made, [tensor.double().cpu() for tensor in made]


def convolved(x, weight, bias):
    padded = F.pad(x, (weight.shape[1] - 1, 0))
    return F.conv1d(padded, weight[:, None], bias, groups=len(weight))


@requires_gpu
@pytest.mark.parametrize("activation", [None, "silu"])
def test_sequences(tensors, activation):
    (x, weight, bias), exact = tensors
    expected = convolved(*exact)
    found = causal_conv1d.causal_conv1d_fn(x, weight, bias, activation=activation)
    assert error(found, F.silu(expected) if activation else expected) < BOUNDS[x.dtype]


@requires_gpu
def test_a_step(tensors):
    (x, weight, bias), exact = tensors
    state = x[..., -5:-1].contiguous()
    found = causal_conv1d.causal_conv1d_update(x[..., -1], state, weight, bias, activation="silu")
    assert error(found, F.silu(convolved(*exact)[..., -1])) < BOUNDS[x.dtype]
    assert torch.equal(state, x[..., -4:])


@requires_gpu
def test_gradients(tensors):
    (x, weight, bias), exact = tensors
    made = [tensor.requires_grad_() for tensor in (x, weight, bias)]
    causal_conv1d.causal_conv1d_fn(*made, activation="silu").sum().backward()
    exact = [tensor.requires_grad_() for tensor in exact]
    F.silu(convolved(*exact)).sum().backward()
    for ours, theirs in zip(made, exact, strict=True):
        assert error(ours.grad, theirs.grad) < 2 * BOUNDS[x.dtype]
