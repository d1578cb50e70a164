"""Integers to floats and back, in 8 and 4 bits."""

import math

import pytest
import torch
from cases.dequantize import weights
from exact import laid_out_otherwise, poison

import fusedops

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
by_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype).split(".")[1])
by_bits = pytest.mark.parametrize("packed", [False, True], ids=["8 bits", "4 bits"])
# Rows, columns and groups: of one column and of odd ones, groups under a vector and over a block,
# one group, and one to a row.
SHAPES = (
    (1, 2, 1),
    (7, 2, 7),
    (12, 34, 3),
    (30, 6, 10),
    (64, 1000, 64),
    (5, 4098, 5),
    (96, 512, 1),
    (33, 3074, 11),
    (256, 4096, 8),
)
LARGE = ((3001, 4096, 3001), (1024, 16_384, 8), (777, 5002, 7), (4096, 130, 2048))


def integers(weight):
    """Written out element by element, another way than the reference's."""
    if weight.dtype == torch.int8:
        return weight.double()
    both = torch.stack([weight.int() % 16, weight.int() // 16], -1).flatten(1)
    return torch.where(both > 7, both - 16, both).double()


def exact(weight, scale, dtype):
    values = integers(weight)
    groups = torch.arange(values.shape[0], device=scale.device) // (
        values.shape[0] // scale.shape[0]
    )
    return (values * scale.double()[groups, None]).float().to(dtype)


def check(weight, scale, dtype):
    expected = exact(weight, scale, dtype)
    poison(expected)
    actual = fusedops.dequantize(weight, scale, dtype=dtype)
    assert actual.dtype == dtype
    assert actual.is_contiguous()
    assert torch.equal(actual, expected), (weight.shape, scale.shape)


@by_dtype
@by_bits
def test_values(dtype, packed, anywhere):
    shapes = SHAPES + (LARGE if anywhere.type == "cuda" else ())
    for rows, cols, groups in shapes:
        check(*weights(rows, cols, groups, packed=packed, device=anywhere), dtype)
    if not packed:
        for rows, cols, groups in ((5, 1, 5), (9, 3, 3), (17, 33, 17), (1, 4097, 1)):
            check(*weights(rows, cols, groups, packed=False, device=anywhere), dtype)


@by_bits
def test_strides_and_alignment(packed, anywhere):
    weight, scale = weights(24, 66, 8, packed=packed, device=anywhere)
    for view in laid_out_otherwise(weight):
        check(view, scale, torch.float16)
    for view in laid_out_otherwise(scale):
        check(weight, view, torch.bfloat16)


@by_bits
def test_nothing(packed, anywhere):
    for rows, cols in ((0, 4), (4, 0)):
        weight, scale = weights(rows, cols, 2, packed=packed, device=anywhere)
        assert fusedops.dequantize(weight, scale).shape == (rows, cols)


def test_every_value_of_4_bits(anywhere):
    weight = torch.arange(256, device=anywhere).to(torch.uint8)[None]
    actual = fusedops.dequantize(weight, torch.ones(1, device=anywhere), dtype=torch.float32)[0]
    signed = [*range(8), *range(-8, 0)]
    assert actual[0::2].tolist() == signed * 16
    assert actual[1::2].tolist() == [value for value in signed for _ in range(16)]


def test_scales_go_by_the_formula(anywhere):
    scale = torch.tensor([math.inf, math.nan, -0.0, -1e30], device=anywhere)
    weight = torch.tensor([[1, 0], [1, 0], [1, 0], [1, 0]], device=anywhere).to(torch.int8)
    actual = fusedops.dequantize(weight, scale)
    assert actual[0, 0] == math.inf
    assert actual[0, 1].isnan()
    assert actual[1].isnan().all()
    assert actual[2:, 0].tolist() == [0, -math.inf]
    assert actual[2:, 1].signbit().all()


@by_bits
def test_quantize_is_undone_to_half_a_scale(packed, anywhere):
    weight = torch.randn(24, 70, device=anywhere) * torch.rand(24, 1, device=anywhere)
    weight[3:6] = 0
    for groups in (1, 8, 24):
        values, scale = fusedops.quantize(weight, groups, bits=4 if packed else 8)
        assert values.shape == (24, 35 if packed else 70)
        back = fusedops.dequantize(values, scale, dtype=torch.float32)
        by_row = scale.repeat_interleave(24 // groups)[:, None]
        assert bool(((back - weight).abs() <= 0.5001 * by_row).all())
        most = weight.view(groups, -1).abs().amax(1) / (7 if packed else 127)
        torch.testing.assert_close(scale, most)
        assert integers(values).abs().max() == (7 if packed else 127)


def test_entry_points_by_the_type_of_the_result(anywhere):
    weight, scale = weights(6, 8, 2, packed=False, device=anywhere)
    for suffix, dtype in zip(("fp32", "fp16", "bf16"), DTYPES, strict=True):
        actual = getattr(fusedops, f"dequantize_{suffix}")(weight, scale)
        assert torch.equal(actual, fusedops.dequantize(weight, scale, dtype=dtype))
    assert fusedops.dequantize(weight, scale).dtype == torch.float16


def test_is_captured_in_a_graph(gpu):
    weight, scale = weights(256, 512, 8, packed=True, device=gpu)
    fusedops.dequantize(weight, scale)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        actual = fusedops.dequantize(weight, scale)
    weight += 17
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(actual, exact(weight, scale, torch.float16))


@by_bits
def test_more_than_2_31_elements(packed, gpu):
    cols, period = 4098, 1031
    groups = (1 << 31) // (cols * 16) + 7
    rows = 16 * groups
    if torch.cuda.mem_get_info(gpu)[0] < 5 * rows * cols:
        pytest.skip("less than 10 GiB of GPU memory free")
    few, _ = weights(16 * period, cols, 1, packed=packed, device=gpu)
    scale = torch.randn(groups, device=gpu)
    weight = few.repeat(-(-rows // (16 * period)), 1)[:rows]
    actual = fusedops.dequantize(weight, scale)
    for start in range(0, groups, period):
        part = slice(16 * start, 16 * (start + period))
        assert torch.equal(
            actual[part], exact(weight[part], scale[start : start + period], torch.float16)
        ), start
    one = fusedops.dequantize(weight, scale[:1])
    assert torch.equal(one[-1], exact(weight[-1:], scale[:1], torch.float16)[0])
    del actual, one
    torch.cuda.empty_cache()


def matrix(device, **keywords):
    weight, scale = weights(6, 8, 2, packed=False, device=device)
    return {"weight": weight, "scale": scale, **keywords}


WRONG = {
    "result": (
        lambda d: matrix(d, dtype=torch.float64),
        "dtype: expected float32, float16 or bfloat16, found float64",
    ),
    "floats": (
        lambda d: matrix(d, weight=torch.ones(6, 8, device=d)),
        r"weight: expected dtype int8 \(a value a byte\) or uint8 \(two\), found float32",
    ),
    "rank": (
        lambda d: matrix(d, weight=torch.ones(6, device=d).to(torch.int8)),
        r"weight: expected 2 dimensions, found \[6\]",
    ),
    "half scales": (
        lambda d: matrix(d, scale=torch.ones(2, device=d).half()),
        "scale: expected dtype float32, found float16",
    ),
    "groups": (
        lambda d: matrix(d, scale=torch.ones(4, device=d)),
        r"scale: expected shape \[groups\] with a divisor of 6 \(the rows of weight\), found \[4\]",
    ),
    "no groups": (lambda d: matrix(d, scale=torch.ones(0, device=d)), r"scale: .*found \[0\]"),
    "two dimensions of scales": (
        lambda d: matrix(d, scale=torch.ones(2, 1, device=d)),
        r"scale: .*found \[2, 1\]",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments(name, anywhere):
    make, message = WRONG[name]
    with pytest.raises(ValueError, match=f"^dequantize: {message}"):
        fusedops.dequantize(**make(anywhere))


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"groups": 5}, r"groups: expected a divisor of 6 \(the rows of weight\), found 5"),
        ({"groups": 2, "bits": 3}, "bits: expected 8 or 4, found 3"),
        (
            {"groups": 2, "bits": 4},
            "weight: expected an even number of columns for 4 bits, found 7",
        ),
    ],
)
def test_wrong_arguments_of_quantize(keywords, message):
    with pytest.raises(ValueError, match=f"^quantize: {message}"):
        fusedops.quantize(torch.ones(6, 7), **keywords)
