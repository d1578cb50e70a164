"""Gated linear units: special values, ulps, rows without end, wrong arguments."""

import math

import pytest
import torch
from cases.gated import GATES
from exact import by_dtype, fell_back

import fusedops
from fusedops.call import call

by_kind = pytest.mark.parametrize("kind", GATES)


@by_dtype
@by_kind
def test_special_values(dtype, kind, anywhere):
    gates = [math.inf, -math.inf, math.nan, 0.0, -1e4, 1e4, -60.0]
    gate = torch.tensor(gates, device=anywhere).to(dtype).repeat(3)  # whole vectors too
    y = fusedops.gated_activation(torch.cat([torch.ones_like(gate), gate]), kind=kind)
    actual = y[: len(gates)].tolist()
    assert actual[0] == math.inf
    assert actual[1] == 0
    assert math.isnan(actual[2])
    assert actual[3] == 0
    assert actual[4] == 0
    assert actual[5] == gate[5].item()
    assert abs(actual[6]) < 1e-24
    value = torch.tensor([math.inf, -math.inf, math.nan], device=anywhere).to(dtype).repeat(8)
    y = fusedops.gated_activation(torch.cat([value, torch.ones_like(value)]), kind=kind)
    assert y[:2].tolist() == [math.inf, -math.inf]
    assert y[2].isnan()


@by_dtype
@by_kind
def test_slopes_at_the_infinities(dtype, kind, anywhere):
    gate = torch.tensor([math.inf, -math.inf, 1e4, -1e4] * 6, device=anywhere).to(dtype)
    x = torch.cat([torch.full_like(gate, 3), gate])
    grad_x, grad_bias = torch.ops.fusedops.gated_activation_backward(
        torch.ones_like(gate), x, kind=kind
    )
    assert grad_x[:4].tolist() == [math.inf, 0, gate[2].item(), 0]
    assert grad_x[24:28].tolist() == pytest.approx([3, 0, 3, 0], abs=1e-30)
    assert grad_bias.shape == (0,)


@by_kind
def test_missing_bias_is_a_bias_of_zeros(kind, anywhere):
    for columns in (40, 37):
        x = torch.randn(11, 2 * columns, device=anywhere)
        zeros = torch.zeros(2 * columns, device=anywhere)
        bare = fusedops.gated_activation(x, kind=kind)
        assert torch.equal(bare, fusedops.gated_activation(x, zeros, kind=kind))
        grad = torch.randn_like(bare)
        backward = torch.ops.fusedops.gated_activation_backward
        torch.testing.assert_close(
            backward(grad, x, kind=kind)[0], backward(grad, x, zeros, kind=kind)[0]
        )


def test_float32_silu_is_within_2_ulps(gpu):
    if fell_back():
        pytest.skip("plain PyTorch runs here, which promises no such thing")
    dense = torch.linspace(-108, 20, 1 << 22, device=gpu)
    tiny = torch.logspace(-37, 0, 1 << 18, device=gpu)
    gate = torch.cat([dense, tiny, -tiny]).view(-1, 256)
    x = torch.cat([torch.ones_like(gate), gate], 1)
    y = fusedops.gated_activation(x, kind="swiglu")
    rounded = (gate.double() * torch.sigmoid(gate.double())).float()
    ulp = torch.nextafter(rounded.abs(), torch.full_like(rounded, math.inf)) - rounded.abs()
    off = (y.double() - rounded.double()).abs() / ulp.double()
    assert off.max().item() <= 2, f"{off.max().item()} ulp at {gate.flatten()[off.argmax()]!r}"


def test_a_row_of_more_than_2_31_columns(gpu):
    columns = (1 << 31) + 5
    if torch.cuda.mem_get_info(gpu)[0] < 16 << 30:
        pytest.skip("less than 16 GiB of GPU memory free")
    x = torch.zeros(2 * columns, dtype=torch.bfloat16, device=gpu)
    for at in (0, 1 << 31, columns - 1):
        x[at], x[columns + at] = 3, 2
    y = fusedops.gated_activation(x, kind="reglu")
    assert [y[at].item() for at in (0, 1 << 31, columns - 1)] == [6, 6, 6]
    assert y.count_nonzero().item() == 3
    del x, y
    torch.cuda.empty_cache()


@pytest.mark.parametrize("columns", [2048, 2049])
def test_gradient_of_more_than_2_31_elements(columns, gpu):
    if torch.cuda.mem_get_info(gpu)[0] < 20 << 30:
        pytest.skip("less than 20 GiB of GPU memory free")
    rows = (1 << 31) // (2 * columns) + 129
    bias = torch.randn(2 * columns, device=gpu).bfloat16()
    x = torch.zeros(rows, 2 * columns, dtype=torch.bfloat16, device=gpu)
    grad = torch.ones((), dtype=torch.bfloat16, device=gpu).expand(rows, columns)
    backward = torch.ops.fusedops.gated_activation_backward
    grad_x, grad_bias = backward(grad, x, bias, kind="reglu")
    value, gate = bias.chunk(2)
    expected = torch.cat([gate.relu(), value * (gate > 0)])
    assert torch.equal(grad_x[-1], expected)
    assert torch.equal(grad_x[rows // 2], expected)
    torch.testing.assert_close(grad_bias, (expected.double() * rows).bfloat16())
    x += bias
    assert torch.equal(backward(grad, x, kind="reglu")[0], grad_x)
    del x, grad_x
    torch.cuda.empty_cache()


WRONG = {
    "kind": (
        lambda x: fusedops.gated_activation(x, kind="glu"),
        "gated_activation: kind: expected 'geglu', 'geglu_erf', 'swiglu' or 'reglu', found 'glu'",
    ),
    "odd": (
        lambda x: fusedops.gated_activation(x[:, :5], kind="swiglu"),
        r"gated_activation: x: expected an even last dimension \(values and gates\), found 5",
    ),
    "no dimension": (
        lambda x: fusedops.gated_activation(x[0, 0], kind="swiglu"),
        "gated_activation: x: expected at least 1 dimension, found 0",
    ),
    "bias of one half": (
        lambda x: fusedops.gated_activation(x, x[0, :3], kind="swiglu"),
        r"gated_activation: bias: expected shape \[6\] \(the last dimension of x\), found \[3\]",
    ),
    "gradient of both halves": (
        lambda x: call(torch.ops.fusedops.gated_activation_backward, x, x, kind="swiglu"),
        r"gated_activation_backward: grad: expected the shape of x, \[2, 6\], with half the last "
        r"dimension, found \[2, 6\]",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments(name, anywhere):
    wrong, message = WRONG[name]
    with pytest.raises(ValueError, match=message):
        wrong(torch.ones(2, 6, device=anywhere))
