"""What the norms do at the edges: rows of one number, large means, infinities, unused results."""

import math

import pytest
import torch
from cases.case import outputs
from cases.norm import CASES, layer_norm, rms_norm
from exact import by_dtype

import fusedops
from fusedops.call import call

# Lengths for every layout of the kernels: rows that share a warp, a block, a cluster of blocks, and
# none at once.
LENGTHS = (1, 2, 3, 16, 63, 64, 100, 513, 1000, 4096, 4097, 20_000, 131_072)
by_length = pytest.mark.parametrize("length", LENGTHS)


@by_dtype
@by_length
def test_a_row_of_one_number_is_beta(dtype, length, anywhere):
    """The mean is that number and no neighbour of it, so nothing is left to magnify."""
    if dtype == torch.float32 and length > 2**13:
        pytest.skip("a sum of so many is no longer exact")
    x = torch.tensor([3.0, -1024.0, 0.0], device=anywhere, dtype=dtype)[:, None].repeat(1, length)
    gamma, beta = torch.randn(2, length, device=anywhere).to(dtype)
    y = fusedops.layer_norm(x, gamma, beta)
    assert torch.equal(y, beta.expand_as(y))


@by_length
def test_a_mean_far_from_0_costs_no_more_than_its_own_rounding(length, anywhere):
    if length < 16:
        pytest.skip("the deviation of few numbers may be small")
    x = torch.randn(3, length, device=anywhere) + 1e4
    ones, zeros = torch.ones(length, device=anywhere), torch.zeros(length, device=anywhere)
    y = fusedops.layer_norm(x, ones, zeros)
    exact = layer_norm(x.double(), ones.double(), zeros.double())
    # A mean of 1e4 is known to 2^-11 at best, and a sum of many numbers is rounded too.
    assert (y.double() - exact).abs().max().item() < 8e-3


@by_dtype
@by_length
def test_an_infinity_or_a_nan_stays_in_its_row(dtype, length, anywhere):
    gamma = torch.ones(length, device=anywhere, dtype=dtype)
    for value in (math.inf, -math.inf, math.nan):
        x = torch.randn(5, length, device=anywhere).to(dtype)
        clean = x.clone()
        x[2, length // 2] = value
        rest = [0, 1, 3, 4]
        y = fusedops.layer_norm(x, gamma, gamma)
        assert y[2].isnan().all()
        assert torch.equal(y[rest], fusedops.layer_norm(clean, gamma, gamma)[rest])
        y = fusedops.rms_norm(x, gamma)
        assert y[2, length // 2].isnan()
        others = torch.arange(length, device=anywhere) != length // 2
        # x / inf, but x / nan
        assert (y[2].isnan() if math.isnan(value) else y[2] == 0)[others].all()
        assert torch.equal(y[rest], fusedops.rms_norm(clean, gamma)[rest])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@by_dtype
def test_a_row_has_the_same_bits_among_few_rows_and_many(case, dtype, gpu):
    for length in (*LENGTHS[3:-1], 16_384, 32_768, 100_000):
        args = case.inputs((min(700, 2**24 // length), length), dtype, gpu)
        many = outputs(case.ours(*args))
        # The last rows are drawn from a queue. Those of an odd length would not start on 16 bytes.
        for rows in (slice(3), slice(-3, None)) if length % 8 == 0 else (slice(3),):
            few = [arg[rows] if arg.dim() == 2 else arg for arg in args]
            for some, all_rows in zip(outputs(case.ours(*few)), many, strict=True):
                assert torch.equal(some, all_rows[rows])


def test_squares_of_float16_do_not_overflow(anywhere):
    x = torch.full((2, 4096), 6e4, device=anywhere, dtype=torch.float16)
    assert torch.equal(fusedops.rms_norm(x, torch.ones_like(x[0])), torch.ones_like(x))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_norm_is_of_the_sum_before_it_is_rounded(dtype, anywhere):
    # Half a unit of the last place is added to every second number: rounded, some of it is lost.
    x = torch.full((4, 264), 1.0, device=anywhere, dtype=dtype)
    residual = torch.zeros_like(x)
    residual[:, ::2] = torch.finfo(dtype).eps / 2
    row, zeros = torch.ones_like(x[0]), torch.zeros_like(x[0])
    wide = (row.double(), zeros.double())
    s = x.double() + residual.double()
    y, stored = fusedops.layer_norm_residual_store(x, zeros, residual, row, zeros)
    assert torch.equal(stored, s.to(dtype))
    exact, twice = layer_norm(s, *wide), layer_norm(stored.double(), *wide)
    assert (exact - twice).abs().max().item() > 0.05
    torch.testing.assert_close(y.double(), exact, rtol=1e-2, atol=1e-3)
    torch.testing.assert_close(
        fusedops.layer_norm_residual(x, zeros, residual, row, zeros), y, rtol=0, atol=0
    )
    y, stored = fusedops.pre_rms_norm(x, residual, row)
    assert torch.equal(stored, s.to(dtype))
    assert torch.equal(y, rms_norm(s, row.double()).to(dtype))


def test_eps_reaches_the_kernel_and_the_gradient(anywhere):
    x = torch.randn(3, 40, device=anywhere, dtype=torch.float64, requires_grad=True)
    row = torch.ones(40, device=anywhere, dtype=torch.float64)
    for eps in (1e-3, 10.0):
        expected = torch.nn.functional.layer_norm(x, (40,), row, row, eps)
        actual = fusedops.layer_norm(x, row, row, eps=eps)
        torch.testing.assert_close(actual, expected)
        grad = torch.randn_like(x)
        torch.testing.assert_close(
            torch.autograd.grad(actual, x, grad), torch.autograd.grad(expected, x, grad)
        )


def test_either_result_may_go_unused(anywhere):
    x, residual = torch.randn(2, 6, 33, device=anywhere, dtype=torch.float64)
    row = torch.rand(33, device=anywhere, dtype=torch.float64) + 0.5
    for arg in (x, residual, row):
        arg.requires_grad_()

    inputs = (x, residual, row)
    for of in (lambda y, s: y, lambda y, s: s, lambda y, s: y * s):
        actual = of(*fusedops.pre_rms_norm(*inputs)).square().sum()
        exact = of(rms_norm(x + residual, row), x + residual).square().sum()
        pair = [
            torch.autograd.grad(one, inputs, allow_unused=True, materialize_grads=True)
            for one in (actual, exact)
        ]
        torch.testing.assert_close(*pair)


WRONG = {
    "gamma": (
        lambda x, row: fusedops.rms_norm(x, row[:3]),
        r"rms_norm: gamma: expected shape \[4\] \(the last dimension of x\), found \[3\]",
    ),
    "beta": (
        lambda x, row: fusedops.layer_norm(x, row, x),
        r"layer_norm: beta: expected shape \[4\] \(the last dimension of x\), found \[2, 4\]",
    ),
    "residual": (
        lambda x, row: fusedops.pre_rms_norm(x, row, row),
        r"pre_rms_norm: residual: expected shape \[2, 4\] \(that of x\), found \[4\]",
    ),
    "no dimension": (
        lambda x, row: fusedops.rms_norm(x[0, 0], row),
        "rms_norm: x: expected at least 1 dimension, found 0",
    ),
    "gradient": (
        lambda x, row: call(torch.ops.fusedops.rms_norm_backward, x, x, row, row),
        r"rms_norm_backward: grad_sum: expected shape \[2, 4\] \(that of x\), found \[4\]",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments(name, anywhere):
    wrong, message = WRONG[name]
    with pytest.raises(ValueError, match=message):
        wrong(torch.ones(2, 4, device=anywhere), torch.ones(4, device=anywhere))
