"""Right numbers, for every operator, dtype and kind of shape."""

import math

import pytest
import torch
from cases import CASES, PRIVATE
from cases.bias_act import gelu
from cases.case import wide
from exact import (
    assert_close,
    by_case,
    by_case_and_dtype,
    by_dtype,
    fell_back,
    laid_out_otherwise,
    poison,
)
from torch import Tensor

import fusedops
from fusedops.registry import OPS


def check(case, args, dtype):
    exact = case.exact(*wide(args))
    poison(case.ours(*args))
    assert_close(case.ours(*args), exact, dtype, case)


def test_every_public_operator_has_a_case():
    assert {op.name for op in OPS if op.public} == {case.op for case in CASES}
    assert {op.name for op in OPS if not op.public} == set(PRIVATE)


@by_case_and_dtype()
def test_values_on_the_cpu(case, dtype):
    for shape in (*case.empty, *case.small):
        check(case, case.inputs(shape, dtype, torch.device("cpu")), dtype)


@by_case_and_dtype()
def test_values_on_the_gpu(case, dtype, gpu):
    for shape in (*case.empty, *case.small, *case.large):
        check(case, case.inputs(shape, dtype, gpu), dtype)


@by_case
def test_values_on_a_gpu_that_is_not_the_current_one(case, other_gpu):
    for shape in case.small:
        check(case, case.inputs(shape, torch.float32, other_gpu), torch.float32)


@by_case_and_dtype(slow=True)
def test_strides_and_alignment(case, dtype, anywhere):
    args = case.inputs(case.strided, dtype, anywhere)
    for at, arg in enumerate(args):
        if isinstance(arg, Tensor):
            for view in laid_out_otherwise(arg):
                check(case, (*args[:at], view, *args[at + 1 :]), dtype)


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
