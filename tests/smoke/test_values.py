"""Right numbers, for every operator, dtype and kind of shape."""

import math

import pytest
import torch
from exact import CASES, DTYPES, assert_close, fell_back, gelu, inputs, poison

import fusedops
from fusedops.schemas import OPS

# Odd, even, tiny, wide, tall, empty; vectors hold 2 to 8 elements and blocks 128 of them. The last
# has more rows than one dimension of a grid has blocks.
SHAPES = (
    (1,),
    (7,),
    (4096,),
    (0,),
    (3, 0),
    (0, 5),
    (2, 1),
    (5, 3, 129),
    (1023, 8),
    (4099, 3),
    (33, 1001),
    (300, 2048),
    (64, 4097),
    (17, 40_000),
    (1, 100_003),
    (2, 3, 5, 7, 11),
    (140_001, 512),
)

by_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
by_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype).split(".")[1])


def test_every_public_operator_has_a_case():
    assert {op.name for op in OPS if op.public} == {case.name.split()[0] for case in CASES}


@by_case
@by_dtype
def test_values_on_the_cpu(case, dtype):
    for shape in ((0, 5), (7,), (5, 3, 129)):
        a, b = inputs(case, shape, dtype, torch.device("cpu"))
        assert_close(case.ours(a, b), case.exact(a.double(), b.double()), dtype)


@by_case
@by_dtype
def test_values_on_the_gpu(case, dtype, gpu):
    for shape in SHAPES:
        a, b = inputs(case, shape, dtype, gpu)
        poison(shape, dtype, gpu)
        assert_close(case.ours(a, b), case.exact(a.double(), b.double()), dtype)


@by_case
@by_dtype
def test_strides_and_alignment(case, dtype, gpu):
    shape = (37, 264)
    wide, b = inputs(case, (37, 2 * 264), dtype, gpu)
    second = b[..., :264].contiguous()
    long, _ = inputs(case, (37 * 264 + 8,), dtype, gpu)
    views = [wide[:, ::2], wide[:, :264], torch.randn(264, 37, device=gpu).to(dtype).t()]
    views += [long[off : off + 37 * 264].view(shape) for off in range(8)]
    for a in views:
        poison(shape, dtype, gpu)
        assert_close(case.ours(a, second), case.exact(a.double(), second.double()), dtype)
    shifted = torch.cat([second.flatten()[:1], second.flatten()])[1:].view(second.shape)
    a = views[0].contiguous()
    assert_close(case.ours(a, shifted), case.exact(a.double(), shifted.double()), dtype)


@by_dtype
@pytest.mark.parametrize("form", ["tanh", "none"])
def test_special_values(dtype, form, anywhere):
    values = [math.inf, -math.inf, math.nan, 0.0, -1e4, 1e4, -60.0]
    x = torch.tensor(values * 3, device=anywhere).to(dtype)
    y = fusedops.bias_gelu(x, torch.zeros_like(x), approximate=form)[: len(values)].tolist()
    assert y[0] == math.inf
    assert y[1] == 0
    assert math.isnan(y[2])
    assert y[3] == 0
    assert y[4] == 0
    assert y[5] == x[5].item()
    assert abs(y[6]) < 1e-30
    r = fusedops.bias_relu(x, torch.zeros_like(x))[:4].tolist()
    assert r[:2] == [math.inf, 0]
    assert math.isnan(r[2])


@pytest.mark.parametrize(("form", "ulps"), [("tanh", 2), ("none", 12)])
def test_float32_gelu_is_within_ulps(form, ulps, gpu):
    if fell_back():
        pytest.skip("plain PyTorch runs here, which promises no such thing")
    # The hardware's exponential makes the erf form flush results under 1e-36.
    dense = torch.linspace(-10.8, 6, 1 << 22, device=gpu)
    tiny = torch.logspace(-37, 0, 1 << 18, device=gpu)
    x = torch.cat([dense, tiny, -tiny])
    y = fusedops.bias_gelu(x.view(-1, 256), torch.zeros(256, device=gpu), approximate=form).view(-1)
    exact = gelu(x.double(), form)
    rounded = exact.float()
    inside = rounded.abs() > (0 if form == "tanh" else 1e-36)
    ulp = torch.nextafter(rounded.abs(), torch.full_like(rounded, math.inf)) - rounded.abs()
    off = ((y.double() - rounded.double()).abs() / ulp.double())[inside]
    assert off.max().item() <= ulps, f"{off.max().item()} ulp at {x[inside][off.argmax()].item()!r}"
