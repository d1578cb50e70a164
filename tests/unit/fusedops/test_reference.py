"""The reference against float64 formulas, over random shapes, strides and values."""

import math

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

import fusedops  # noqa: E402

DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
SHAPES = st.lists(st.integers(0, 9), min_size=1, max_size=4).map(tuple)


def gelu(v, form):
    if form == "none":
        return 0.5 * v * torch.special.erfc(-v * math.sqrt(0.5))
    return v * torch.sigmoid(2 * math.sqrt(2 / math.pi) * (v + 0.044715 * v**3))


def close(actual, exact, dtype):
    assert actual.dtype == dtype
    assert actual.is_contiguous()
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(
        actual.double(), exact, rtol=max(0.51 * eps, 4e-7 if eps > 1e-12 else 8 * eps), atol=2e-6
    )


@given(shape=SHAPES, dtype=st.sampled_from(DTYPES), seed=st.integers(0, 2**31), turn=st.booleans())
@settings(max_examples=120)
def test_bias_operators(shape, dtype, seed, turn):
    generator = torch.Generator().manual_seed(seed)
    x = (torch.randn(shape, generator=generator, dtype=torch.float64) * 3).to(dtype)
    if turn:
        x = x.transpose(0, -1)
    bias = torch.randn(x.shape[-1], generator=generator, dtype=torch.float64).to(dtype)
    v = x.double() + bias.double()
    close(fusedops.bias_add(x, bias), v, dtype)
    close(fusedops.bias_relu(x, bias), v.clamp_min(0), dtype)
    for form in ("tanh", "none"):
        close(fusedops.bias_gelu(x, bias, approximate=form), gelu(v, form), dtype)


def test_16_bit_results_are_rounded_once():
    # 1 + 2^-8 is no bfloat16; rounding the sum before adding again would lose both halves.
    x = torch.full((4,), 1.0, dtype=torch.bfloat16)
    bias = torch.full((4,), 2.0**-8, dtype=torch.bfloat16)
    once = fusedops.bias_gelu(x, bias, approximate="none")
    exact = gelu((x.double() + bias.double()), "none").to(torch.bfloat16)
    twice = gelu((x + bias).double(), "none").to(torch.bfloat16)
    assert not torch.equal(exact, twice)
    assert torch.equal(once, exact)
