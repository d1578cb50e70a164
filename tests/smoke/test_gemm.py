"""Products with weights: layouts, few rows, what is written in place, and wrong arguments."""

import itertools
import math
from collections.abc import Iterator
from functools import partial

import pytest
import torch
from cases.gemm import ACTIVATIONS, dense
from torch import Tensor

import fusedops

HALVES = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["fp16", "bf16"])


def normal(*shape: int, dtype: torch.dtype, device: torch.device, spread: float = 1.0) -> Tensor:
    return (torch.randn(shape, device=device) * spread).to(dtype)


def by_columns(weight: Tensor) -> Tensor:
    """The same, as the weight of torch.nn.Linear lies when it is transposed."""
    return weight.t().contiguous().t()


def with_gaps(weight: Tensor) -> Tensor:
    """The same, as a part of a wider weight."""
    return torch.cat([weight, weight], 1)[:, : weight.shape[1]]


LAYOUTS = {"rows": lambda w: w, "columns": by_columns, "gaps": with_gaps}


def assert_near(actual: Tensor, exact: Tensor, ulps: float = 4.0) -> None:
    """Within ulps of the dtype, of the value or of the root mean square."""
    scale = exact.abs() + exact.square().mean().sqrt()
    error = (actual.double() - exact).abs() / (scale * torch.finfo(actual.dtype).eps)
    assert error.max().item() <= ulps


@HALVES
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "rows", [1, 9, *(pytest.param(n, marks=pytest.mark.nightly) for n in (2, 7, 8, 16, 17))]
)
def test_few_rows(rows, layout, dtype, anywhere):
    shapes = [(8, 8), (72, 24), (136, 192), (264, 520), (1000, 40), (2056, 4104), (8192, 64)]
    if anywhere.type == "cuda":  # a kernel takes these alone there
        shapes += [(4104, 2112), (4104, 8512), (4096, 12_800), (4104, 16_960)]
    for inner, cols in shapes:
        x = normal(rows, inner, dtype=dtype, device=anywhere)
        weight = LAYOUTS[layout](
            normal(inner, cols, dtype=dtype, device=anywhere, spread=inner**-0.5)
        )
        bias = normal(cols, dtype=dtype, device=anywhere)
        exact = x.double() @ weight.double() + bias.double()
        assert_near(fusedops.linear_layer(x, weight, bias), exact)


@HALVES
@pytest.mark.parametrize("cols", [8512, 12_800, 16_960])
def test_few_rows_of_a_wide_weight(cols, dtype, anywhere):
    """A weight by rows that has more columns than as many narrow blocks as there are processors."""
    x = normal(5, 200, dtype=dtype, device=anywhere)
    weight = normal(200, cols, dtype=dtype, device=anywhere, spread=200**-0.5)
    assert_near(fusedops.vector_matmul(x, weight), x.double() @ weight.double())


def check_mlp(x: Tensor, up: Tensor, down: Tensor, activation: str) -> None:
    residual, gamma = torch.randn_like(x), torch.randn_like(x[0])
    s = x.double() + residual.double()
    u = s / (s.square().mean(-1, keepdim=True) + 1e-6).sqrt() * gamma.double()
    exact = ACTIVATIONS[activation](u @ up.double()) @ down.double()
    product, total = fusedops.rms_mlp_gemm(x, residual, up, down, gamma, activation=activation)
    assert total is residual
    assert_near(residual, s, 1.0)
    assert_near(product, exact, 12.0)


@HALVES
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("rows", [1, 8, 13, 40])
def test_activations_of_few_rows(rows, activation, layout, dtype, anywhere):
    x = normal(rows, 264, dtype=dtype, device=anywhere)
    gated = activation.endswith(("glu", "glu_erf"))
    up = normal(264, 288, dtype=dtype, device=anywhere, spread=0.06)
    down = normal(144 if gated else 288, 96, dtype=dtype, device=anywhere, spread=0.06)
    check_mlp(x, LAYOUTS[layout](up), LAYOUTS[layout](down), activation)


def step_cases() -> Iterator[tuple[int, int, int, str]]:
    """Rows, inner width and columns at the seams of units, tiles, rings and blocks."""
    shapes = ((1, 8, 8), (2, 264, 1), (8, 128, 41), (3, 1160, 2120), (4, 2056, 24))
    for rows, inner, cols in shapes:
        for activation in ("none", "swiglu", "gelu"):
            yield rows, inner, cols, activation


@HALVES
@pytest.mark.parametrize("constant", [True, False], ids=["constant", "written"])
def test_a_decode_step_of_few_rows(constant, dtype, anywhere):
    for rows, inner, cols, activation in step_cases():
        width = 2 * cols if activation == "swiglu" else cols
        x = normal(rows, inner, dtype=dtype, device=anywhere)
        weight = by_columns(normal(inner, width, dtype=dtype, device=anywhere, spread=inner**-0.5))
        gamma = normal(inner, dtype=dtype, device=anywhere)
        residual = normal(rows, cols, dtype=dtype, device=anywhere)
        u = x.double() / (x.double().square().mean(-1, keepdim=True) + 1e-6).sqrt()
        normed = (u * gamma.double()) @ weight.double()
        step = partial(fusedops.decode_gemm, x, weight, constant=constant, activation=activation)
        exact = normed if activation == "none" else ACTIVATIONS[activation](normed)
        assert_near(step(gamma), exact, 32.0)  # v1, v2 and f(v2) are rounded one by one
        if activation == "none":
            assert_near(step(), x.double() @ weight.double())
            assert_near(step(None, residual), x.double() @ weight.double() + residual.double())
            assert_near(step(gamma, residual), normed + residual.double(), 12.0)


@HALVES
@pytest.mark.parametrize("hidden", [4192, 8544])
def test_gates_of_a_large_weight(hidden, dtype, gpu):
    x = normal(7, 4104, dtype=dtype, device=gpu)
    up = normal(4104, 2 * hidden, dtype=dtype, device=gpu, spread=0.016)
    down = normal(hidden, 2112, dtype=dtype, device=gpu, spread=0.016)
    check_mlp(x, up, down, "swiglu")


@HALVES
@pytest.mark.parametrize("layout", ["rows", "columns"])
@pytest.mark.parametrize("groups", [1, 2, 6, 96])
@pytest.mark.parametrize("rows", [1, 8, 16, 20])
def test_int8_weights(rows, groups, layout, dtype, anywhere):
    inner, cols = 384, 144
    x = normal(rows, inner, dtype=dtype, device=anywhere)
    weight = torch.randint(-128, 128, (inner, cols), device=anywhere, dtype=torch.int8)
    weight = LAYOUTS[layout](weight)
    # Float16 weights of more rows are rounded: scales near 0 would leave them too few bits.
    scale = (torch.rand(groups, device=anywhere) + 0.1) * 1e-3
    assert_near(
        fusedops.vector_matmul_int8(x, weight, scale), x.double() @ dense(weight, scale), 6.0
    )


@HALVES
@pytest.mark.parametrize("places", [(1, 1), (2, 1), (1, 7), (4, 2), (3, 3)], ids=str)
def test_few_places_of_the_einsum(places, dtype, anywhere):
    for inner, cols in ((8, 64), (264, 192), (4104, 2112) if anywhere.type == "cuda" else (8, 8)):
        q = normal(inner, *places, dtype=dtype, device=anywhere)
        weight = normal(inner, cols, dtype=dtype, device=anywhere, spread=inner**-0.5)
        exact = torch.einsum("sec,sm->ecm", q.double(), weight.double())
        assert_near(fusedops.einsum_sec_sm_ecm(q, weight), exact)


@HALVES
def test_one_element_of_x_picks_a_row_of_the_weight(dtype, anywhere):
    """Nothing is added that is not there, and no element is taken for another."""
    inner, cols = 264, 160
    weight = normal(inner, cols, dtype=dtype, device=anywhere)
    for rows, layout in itertools.product((7, 11), LAYOUTS.values()):
        x = torch.zeros(rows, inner, device=anywhere, dtype=dtype)
        picked = torch.randperm(inner, device=anywhere)[:rows]
        x[torch.arange(rows, device=anywhere), picked] = 1
        assert torch.equal(fusedops.vector_matmul(x, layout(weight)), weight[picked])


@HALVES
def test_nan_and_infinity_stay_in_their_rows_and_columns(dtype, anywhere):
    x = normal(5, 64, dtype=dtype, device=anywhere)
    weight = normal(64, 96, dtype=dtype, device=anywhere)
    x[2, 7], weight[9, 33] = math.nan, math.inf
    for layout in LAYOUTS.values():
        actual = fusedops.vector_matmul(x, layout(weight))
        assert actual[2].isnan().all()
        others = torch.tensor([0, 1, 3, 4], device=anywhere)
        assert actual[others, 33].isinf().all()
        assert actual[others][:, :33].isfinite().all()
        assert actual[others][:, 34:].isfinite().all()


@pytest.mark.parametrize("rows", [3, 40])
def test_relu_keeps_nan(rows, anywhere):
    x, weight = torch.zeros(rows, 8, device=anywhere), torch.ones(8, 8, device=anywhere)
    x[1] = math.nan
    row, zero = torch.ones(8, device=anywhere), torch.zeros(8, device=anywhere)
    for dtype in (torch.float32, torch.bfloat16):
        args = (x, x, zero, weight, zero, weight, row, zero)
        actual, _ = fusedops.mlp_gemm(*(arg.to(dtype) for arg in args), activation="relu")
        assert actual[1].isnan().all()
        assert actual[0].isfinite().all()


def test_the_residual_is_written_where_it_lies(anywhere):
    x = torch.randn(4, 24, device=anywhere)
    up, down = torch.randn(24, 32, device=anywhere), torch.randn(16, 24, device=anywhere)
    gamma = torch.ones(24, device=anywhere)
    matrix = torch.randn(4, 50, device=anywhere)
    residual, before = matrix[:, 1:49:2], matrix.clone()
    product, total = fusedops.rms_mlp_gemm(x, residual, up, down, gamma)
    assert total is residual
    assert torch.equal(matrix[:, 1:49:2], before[:, 1:49:2] + x)
    assert torch.equal(matrix[:, 0::2], before[:, 0::2])
    plain, _ = fusedops.rms_mlp_gemm(x, before[:, 1:49:2].contiguous(), up, down, gamma)
    torch.testing.assert_close(product, plain)


def arguments_that_are_written(device):
    x = torch.randn(4, 24, device=device)
    up, down = torch.randn(24, 32, device=device), torch.randn(16, 24, device=device)
    return x, x.clone(), up, down, x[0]


def counts_its_writes(function, args):
    version = args[1]._version
    return function(*args)[1] is args[1] and args[1]._version > version


def test_what_writes_refuses_a_gradient_and_counts_its_writes(anywhere):
    x, *rest = arguments_that_are_written(anywhere)
    with pytest.raises(RuntimeError, match="rms_mlp_gemm: writes to its arguments, so it has no"):
        fusedops.rms_mlp_gemm(x.clone().requires_grad_(), *rest)
    assert counts_its_writes(fusedops.rms_mlp_gemm, (x, *rest))


def test_what_writes_counts_its_writes_by_type_too(anywhere):
    args = arguments_that_are_written(anywhere)
    assert counts_its_writes(fusedops.rms_mlp_gemm_fp32, args)


def test_no_sum_at_all(anywhere):
    """K of 0: an empty sum is 0, and what follows is still done."""
    for rows in (2, 20):
        x, up = torch.empty(rows, 0, device=anywhere), torch.empty(0, 6, device=anywhere)
        bias, down = torch.randn(6, device=anywhere), torch.randn(6, 3, device=anywhere)
        assert torch.equal(fusedops.vector_matmul(x, up), torch.zeros(rows, 6, device=anywhere))
        assert torch.equal(fusedops.linear_layer(x, up, bias), bias.expand(rows, 6))
        expected = torch.nn.functional.gelu(bias, approximate="tanh") @ down
        actual = fusedops.fused_gemm_gelu(x, up, bias, down)
        torch.testing.assert_close(actual, expected.expand(rows, 3))


@HALVES
def test_two_runs_of_few_rows_give_the_same_bits(dtype, gpu):
    x = normal(4, 4096, dtype=dtype, device=gpu)
    weight = normal(4096, 6144, dtype=dtype, device=gpu)
    for layout in LAYOUTS.values():
        first, second = (fusedops.vector_matmul(x, layout(weight)) for _ in range(2))
        assert torch.equal(first, second)
    gamma, laid = normal(4096, dtype=dtype, device=gpu), by_columns(weight)
    first, second = (fusedops.decode_gemm(x, laid, gamma, constant=True) for _ in range(2))
    assert torch.equal(first, second)


@HALVES
def test_a_weight_that_the_kernel_before_wrote(dtype, gpu):
    """The kernel for few rows starts before the one before it is done."""
    x = normal(1, 4096, dtype=dtype, device=gpu)
    weight = normal(4096, 8192, dtype=dtype, device=gpu)
    for layout in ("rows", "columns"):
        laid = LAYOUTS[layout](weight).clone()
        torch.cuda.synchronize()
        for _ in range(20):
            laid.neg_()
            actual = fusedops.vector_matmul(x, laid)
            assert torch.equal(actual, fusedops.vector_matmul(x, laid))


WRONG = {
    "rows of weight": (
        lambda x, w, b: fusedops.linear_layer(x, w[:3], b),
        r"linear_layer: weight: expected shape \[4, any\] \(the last dimension of x\), "
        r"found \[3, 6\]",
    ),
    "rank of weight": (
        lambda x, w, b: fusedops.vector_matmul(x, w[0]),
        r"vector_matmul: weight: expected shape \[4, any\] \(the last dimension of x\), "
        r"found \[6\]",
    ),
    "bias": (
        lambda x, w, b: fusedops.linear_layer(x, w, b[:2]),
        r"linear_layer: bias: expected shape \[6\] \(the last dimension of weight\), found \[2\]",
    ),
    "no dimension": (
        lambda x, w, b: fusedops.vector_matmul(x[0, 0], w),
        "vector_matmul: x: expected at least 1 dimension, found 0",
    ),
    "second weight": (
        lambda x, w, b: fusedops.fused_gemm_gelu(x, w, b, w),
        r"fused_gemm_gelu: weight2: expected shape \[6, any\] \(the last dimension of weight\), "
        r"found \[4, 6\]",
    ),
    "dimensions of q": (
        lambda x, w, b: fusedops.einsum_sec_sm_ecm(x, w),
        "einsum_sec_sm_ecm: q: expected 3 dimensions, found 2",
    ),
    "places of q": (
        lambda x, w, b: fusedops.einsum_sec_sm_ecm(x[None], w),
        r"einsum_sec_sm_ecm: weight: expected shape \[1, any\] \(the first dimension of q\), "
        r"found \[4, 6\]",
    ),
    "gamma": (
        lambda x, w, b: fusedops.qkv_gemm(x, w, b, b, x[0]),
        r"qkv_gemm: gamma: expected shape \[4\] \(the last dimension of x\), found \[6\]",
    ),
    "residual": (
        lambda x, w, b: fusedops.rms_mlp_gemm(x, x[:1], w, w, x[0]),
        r"rms_mlp_gemm: residual: expected shape \[2, 4\] \(that of x\), found \[1, 4\]",
    ),
    "gated weight": (
        lambda x, w, b: fusedops.rms_mlp_gemm(x, x, w[:, :5], w, x[0]),
        r"rms_mlp_gemm: weight: expected an even last dimension \(values and gates\), found 5",
    ),
    "half of it": (
        lambda x, w, b: fusedops.rms_mlp_gemm(x, x, w, w, x[0]),
        r"rms_mlp_gemm: weight2: expected shape \[3, any\] \(half the last dimension of weight\), "
        r"found \[4, 6\]",
    ),
    "activation": (
        lambda x, w, b: fusedops.mlp_gemm(x, x, x[0], w, b, w, x[0], x[0], activation="tanh"),
        "mlp_gemm: activation: expected 'gelu', 'gelu_erf', 'relu', 'geglu', 'geglu_erf', "
        "'swiglu' or 'reglu', found 'tanh'",
    ),
    "no int8": (
        lambda x, w, b: fusedops.vector_matmul_int8(x, w, b[:1]),
        "vector_matmul_int8: weight: expected dtype int8, found float32",
    ),
    "int8 and float64": (
        lambda x, w, b: fusedops.vector_matmul_int8(x.double(), w.to(torch.int8), b[:1]),
        "vector_matmul_int8: x: expected dtype float32, float16 or bfloat16, found float64",
    ),
    "groups": (
        lambda x, w, b: fusedops.linear_layer_int8(x, w.to(torch.int8), b[:3], b),
        r"linear_layer_int8: scale: expected shape \[groups\] with a divisor of 4 "
        r"\(the rows of weight\), found \[3\]",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments(name, anywhere):
    call, message = WRONG[name]
    x, weight, bias = (torch.ones(*shape, device=anywhere) for shape in ((2, 4), (4, 6), (6,)))
    with pytest.raises(ValueError, match=message):
        call(x, weight, bias)
