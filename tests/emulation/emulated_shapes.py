"""Shapes at the seams of warps, vectors and blocks, and inputs that lie otherwise."""

import math

import pytest
import torch
from cases.case import Case, Shape, wide
from cases.gemm import dense
from cases.softmax import exact as exact_softmax
from exact import (
    assert_close,
    by_case,
    by_case_and_dtype,
    by_differentiable,
    laid_out_otherwise,
    the_case,
)
from test_gradients import check as check_gradients

import fusedops

AWKWARD = ((1,), (2, 1), (11, 8), (9, 33), (3, 513), (2, 2056), (1, 4099), (2, 3, 5, 7))
CPU = torch.device("cpu")


def shapes(case: Case) -> list[Shape]:
    """The awkward shapes that the case is for."""
    if case.lasts is not None:
        return [(*(2 for _ in range(case.ranks[0] - 1)), last) for last in case.lasts[:3]]
    return [
        shape for shape in AWKWARD if len(shape) in case.ranks and math.prod(shape) >= case.least
    ]


@by_case_and_dtype()
def test_awkward_shapes(case, dtype):
    for shape in shapes(case):
        args = case.inputs(shape, dtype, CPU)
        assert_close(case.ours(*args), case.exact(*wide(args)), dtype, case)


@by_differentiable
def test_gradients_of_whole_vectors(case):
    """Of rows that some kernels take alone."""
    for shape in ((5, 64), (2, 2, 3, 64)):
        if len(shape) in case.ranks and case.lasts is None and math.prod(shape) >= case.least:
            check_gradients(case, case.inputs(shape, torch.float32, CPU), torch.float32)


@by_case
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_inputs_that_lie_otherwise(case, dtype):
    if dtype not in case.dtypes:
        pytest.skip(f"{case.name} is not for {dtype}")
    args = case.inputs(case.small[-1], dtype, CPU)
    for at, arg in enumerate(args):
        if not isinstance(arg, torch.Tensor):
            continue
        views = list(laid_out_otherwise(arg))
        for view in (views[0], views[-1]):
            some = (*args[:at], view, *args[at + 1 :])
            assert_close(case.ours(*some), case.exact(*wide(some)), dtype, case)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize(
    "name", ["rms_norm", "layer_norm", "pre_rms_norm", "layer_norm_residual_store"]
)
def test_rows_of_a_cluster(name, dtype):
    """Rows that several blocks share where there are clusters, and their gradients."""
    case = the_case(name)
    for rows, cols in ((2, 24_576), (2, 65_536), (9, 65_537), (3, 270_336)):
        args = case.inputs((rows, cols), dtype, CPU)
        assert_close(case.ours(*args), case.exact(*wide(args)), dtype, case)
        check_gradients(case, args, dtype)


@pytest.mark.parametrize(
    ("name", "dtype", "rows", "cols"),
    [
        ("layer_norm", torch.bfloat16, 140, 16_400),
        ("pre_rms_norm", torch.float32, 1100, 2048),
        ("rms_norm", torch.float32, 23, 33_000),
        ("layer_norm", torch.float32, 23, 66_000),
        ("layer_norm", torch.bfloat16, 23, 66_000),
        ("layer_norm", torch.float16, 140, 16_401),
        ("pre_rms_norm", torch.bfloat16, 600, 4099),
        ("layer_norm", torch.bfloat16, 23, 66_002),
        ("layer_norm", torch.float32, 29, 66_003),
        ("rms_norm", torch.float32, 15, 131_073),
        ("layer_norm", torch.float32, 15, 140_000),
        ("pre_rms_norm", torch.float32, 15, 140_003),
    ],
)
def test_gradients_of_many_rows(name, dtype, rows, cols):
    """Where there are clusters, a block or a cluster takes some of them. Their mean is not 0."""
    case = the_case(name)
    x, *others = case.inputs((rows, cols), dtype, CPU)
    check_gradients(case, (x + 4, *others), dtype)


@pytest.mark.parametrize("cols", [4096, 4099])
def test_gradients_of_rows_with_outliers(cols):
    """A warp takes its sums relative to them, and they are nearly all of its variance."""
    x = torch.randn(140, cols)
    x[:, ::256] = 1000
    args = [x, torch.randn(cols), torch.randn(cols)]
    grad = torch.randn_like(x)
    ours = torch.ops.fusedops.layer_norm_backward(grad, x, args[1], None, eps=1e-5)
    exact = [arg.double().requires_grad_() for arg in args]
    y = torch.nn.functional.layer_norm(exact[0], (cols,), exact[1], exact[2], 1e-5)
    right = torch.autograd.grad(y, exact, grad.double())
    for actual, expected in zip(ours, right, strict=True):
        error = torch.linalg.vector_norm(actual.double() - expected)
        assert error <= 2**-17 * torch.linalg.vector_norm(expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize(
    ("queries", "keys"), [(3, 1032), (5, 9000), (3, 33_000), (3, 33_001), (8, 33_001)]
)
def test_scores_with_masks_of_every_kind(queries, keys, dtype):
    """Rows of scores that a few warps, a block, or several blocks share, and their gradient.

    The rows of a mask for all heads are aligned as those of the scores, except for 3 of odd length.
    """
    scores = torch.randn(1, 2, queries, keys).to(dtype)
    added = torch.randn(1, 1, queries, keys)
    tolerance = 2e-6 if dtype == torch.float32 else 5e-3
    for mask in (None, added.to(dtype), added, added > 0, (added > 0)[0, 0, :1]):
        for causal in (False, True):
            y = fusedops.softmax(scores, mask, scale=0.5, causal=causal).double()
            right = exact_softmax(scores.double(), mask, scale=0.5, causal=causal)
            assert torch.linalg.vector_norm(y - right) <= tolerance * torch.linalg.vector_norm(
                right
            )
    scores.requires_grad_()
    y, grad = fusedops.softmax(scores), torch.randn_like(scores)
    (actual,) = torch.autograd.grad(y, scores, grad)
    y, grad = y.detach().double(), grad.double()
    right = y * (grad - (y * grad).sum(-1, keepdim=True))
    assert torch.linalg.vector_norm(actual - right) <= tolerance * torch.linalg.vector_norm(right)


def test_rows_longer_than_a_clusters_shared_memory():
    """What is not held there is read again. A cluster takes several of them."""
    for name, rows, cols in (
        ("rms_norm", 2, 500_001),
        ("layer_norm", 2, 524_300),
        ("layer_norm_residual", 3, 200_001),
        ("pre_rms_norm", 7, 200_000),
    ):
        case = the_case(name)
        x, *others = case.inputs((rows, cols), torch.float32, CPU)
        args = (x + 3, *others)
        assert_close(case.ours(*args), case.exact(*wide(args)), torch.float32, case)
    y = torch.softmax(torch.randn(1, 500_001), -1)
    grad = torch.randn_like(y)
    actual = torch.ops.fusedops.softmax_backward(grad, y, scale=1.0)
    right = (y.double() * (grad - (y * grad).double().sum())).float()
    torch.testing.assert_close(actual, right, rtol=1e-4, atol=1e-9)


def test_sums_of_a_cluster():
    """Sums that several blocks share where there are clusters."""
    x = torch.randn(3, 4096, dtype=torch.bfloat16)
    weight = torch.randint(-128, 128, (4096, 64), dtype=torch.int8)
    scale = torch.rand(8) * 1e-3 + 1e-4
    exact = x.double() @ dense(weight, scale)
    error = (fusedops.vector_matmul_int8(x, weight, scale).double() - exact).abs().max()
    # The result is rounded, and before a plain product the weights too. A lost share is a third.
    assert error <= exact.abs().max() * 2**-7


def test_strides_of_gigabytes(tmp_path):
    """Two sequences that lie 2 GiB apart: places are computed in 64 bits."""
    apart, width = 1 << 29, 40
    file = tmp_path / "sparse"
    with file.open("wb") as out:
        out.truncate(4 * (apart + 64 * width))
    whole = torch.from_file(str(file), shared=True, size=apart + 64 * width)
    x = whole.as_strided((2, 3, 2 * width), (apart, 2 * width, 1))
    x.copy_(torch.randn(x.shape))
    padded = fusedops.pad_transform(x, heads=2)
    assert torch.equal(padded[..., :width], x.unflatten(2, (2, width)).transpose(1, 2))
    assert not padded[..., width:].any()
