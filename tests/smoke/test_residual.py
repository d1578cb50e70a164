"""Sums with a residual: what the flags leave out, and wrong arguments."""

import pytest
import torch
from cases.case import randn
from exact import by_dtype

import fusedops

AFTER_NORM = {"preln": False}
NO_BIAS = {"mlp_after_attn": False, "add_bias": False, "mp_size": 4}


def parts(shape, dtype, device):
    hidden, residual, attention = (randn(shape, dtype, device) for _ in range(3))
    attention_bias, final_bias = (randn(shape[-1:], dtype, device) for _ in range(2))
    return hidden, residual, attention, attention_bias, final_bias


def close(actual, exact, dtype):
    assert actual.dtype == dtype
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(
        actual.double(), exact, rtol=0.51 * eps, atol=max(2e-6, 8 * eps) if eps < 1e-5 else 2e-6
    )


@by_dtype
@pytest.mark.parametrize("columns", [264, 263])
def test_what_the_flags_leave_out(dtype, columns, anywhere):
    args = parts((5, columns), dtype, anywhere)
    h, r, a, _, b = (one.double() for one in args)
    hidden, residual, attention, attention_bias, final_bias = args
    for beside in ((attention, attention_bias), (None, None), (attention, None)):
        actual = fusedops.residual_add_bias(hidden, residual, *beside, final_bias, **AFTER_NORM)
        close(actual, r + h + b, dtype)
    for row in (attention_bias, None):
        actual = fusedops.residual_add_bias(hidden, residual, attention, row, final_bias, **NO_BIAS)
        close(actual, h + a + (r + b) / 4, dtype)


@pytest.mark.parametrize(
    ("flags", "used", "factors"),
    [
        ({"mp_size": 2}, (0, 1, 2, 3, 4), (1, 0.5, 0.5, 0.5, 0.5)),
        (AFTER_NORM, (0, 1, 4), (1, 1, 1)),
        (NO_BIAS, (0, 1, 2, 4), (1, 0.25, 1, 0.25)),
        ({"mlp_after_attn": False}, (0, 1, 2, 3, 4), (1, 1, 1, 1, 1)),
    ],
)
def test_gradients_go_where_the_flags_say(flags, used, factors, anywhere):
    args = [one.requires_grad_() for one in parts((3, 8), torch.float64, anywhere)]
    fusedops.residual_add_bias(*args, **flags).sum().backward()
    assert [at for at, one in enumerate(args) if one.grad is not None] == list(used)
    for at, factor in zip(used, factors, strict=True):
        expected = factor * (3 if args[at].dim() == 1 else 1)
        assert args[at].grad.unique().tolist() == [expected]


def test_infinities_and_nans(anywhere):
    x = torch.tensor([torch.inf, -torch.inf, torch.nan, 1.0] * 6, device=anywhere)
    y = fusedops.bias_residual(x, torch.ones_like(x), torch.ones_like(x))[:4]
    assert y[:2].tolist() == [torch.inf, -torch.inf]
    assert y[2].isnan()
    assert y[3] == 3


WRONG = {
    "another shape": (
        lambda x: fusedops.bias_residual(x, x[:1], x[0]),
        r"bias_residual: residual: expected shape \[2, 4\] \(that of x\), found \[1, 4\]",
    ),
    "another length": (
        lambda x: fusedops.bias_residual(x, x, x[0, :3]),
        r"bias_residual: bias: expected shape \[4\] \(the last dimension of x\), found \[3\]",
    ),
    "no dimension": (
        lambda x: fusedops.bias_residual(x[0, 0], x[0, 0], x[0, :1]),
        "bias_residual: x: expected at least 1 dimension, found 0",
    ),
    "no rank": (
        lambda x: fusedops.residual_add_bias(x, x, x, x[0], x[0], mp_size=0),
        "residual_add_bias: mp_size: expected 1 or more, found 0",
    ),
    "no attention": (
        lambda x: fusedops.residual_add_bias(x, x, None, x[0], x[0]),
        "residual_add_bias: attention: expected a tensor: these flags add it, found None",
    ),
    "no attention bias": (
        lambda x: fusedops.residual_add_bias(x, x, x, None, x[0], mlp_after_attn=False),
        "residual_add_bias: attention_bias: expected a tensor: these flags add it, found None",
    ),
    "coefficients of one": (
        lambda x: fusedops.moe_res_matmul(x, x[0], x),
        r"moe_res_matmul: coef: expected shape \[8\] \(twice the last dimension of residual\), "
        r"found \[4\]",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments(name, anywhere):
    call, message = WRONG[name]
    with pytest.raises(ValueError, match=message):
        call(torch.ones(2, 4, device=anywhere))
