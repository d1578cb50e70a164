"""Gradients against float64, gradcheck, and the same bits twice."""

import pytest
import torch
from exact import CASES, DTYPES, inputs, poison

import fusedops

by_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
by_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype).split(".")[1])
SHAPES = ((7,), (2, 1), (4099, 3), (33, 1001), (5, 3, 129), (700, 2048), (64, 4097))
EMPTY = ((0,), (3, 0), (0, 5))


def gradients(function, a, b, grad):
    a, b = a.detach().requires_grad_(), b.detach().requires_grad_()
    return torch.autograd.grad(function(a, b), (a, b), grad)


def relative_error(found, exact, grad):
    # The slope of GELU crosses 0 and a sum can cancel: what came in is the scale then.
    scale = max(exact.norm().item(), grad.double().norm().item(), 1e-30)
    return (found.double() - exact).norm().item() / scale


def check(case, shape, dtype, device):
    a, b = inputs(case, shape, dtype, device)
    grad = torch.randn(shape, device=device).to(dtype)
    poison(shape, dtype, device)
    found = gradients(case.ours, a, b, grad)
    exact = gradients(case.exact, a.double(), b.double(), grad.double())
    for one, truth in zip(found, exact, strict=True):
        assert one.dtype == dtype
        assert one.shape == truth.shape
        assert relative_error(one, truth, grad) < max(torch.finfo(dtype).eps, 1e-13) * 8


@by_case
@by_dtype
def test_gradients_on_the_cpu(case, dtype):
    for shape in (*EMPTY, (7,), (33, 19)):
        check(case, shape, dtype, torch.device("cpu"))


@by_case
@by_dtype
def test_gradients_on_the_gpu(case, dtype, gpu):
    for shape in (*EMPTY, *SHAPES):
        check(case, shape, dtype, gpu)


@by_case
def test_gradient_of_views(case, gpu):
    a, b = inputs(case, (40, 56), torch.float16, gpu)
    flat = torch.randn(40 * 56 + 1, device=gpu).half()[1:].view(40, 56)
    for grad in (flat, torch.ones((), device=gpu).half().expand(40, 56), a.t().reshape(56, 40).t()):
        found = gradients(case.ours, flat, b, grad)
        exact = gradients(case.exact, flat.double(), b.double(), grad.double())
        assert max(relative_error(f, e, grad) for f, e in zip(found, exact, strict=True)) < 4e-3


@by_case
def test_gradcheck(case, anywhere):
    a, b = inputs(case, (3, 5), torch.float64, anywhere)
    a = torch.where((a + b).abs() < 1e-3, a + 0.1, a)  # off the kink of relu
    assert torch.autograd.gradcheck(case.ours, (a.requires_grad_(), b.requires_grad_()))


def test_only_one_gradient_may_be_wanted(anywhere):
    x = torch.randn(4, 6, device=anywhere)
    bias = torch.randn(6, device=anywhere, requires_grad=True)
    fusedops.bias_gelu(x, bias).sum().backward()
    assert bias.grad.shape == (6,)


def test_second_derivative_is_refused_in_words(anywhere):
    x = torch.randn(4, 6, device=anywhere, requires_grad=True)
    (grad,) = torch.autograd.grad(
        fusedops.bias_gelu(x, torch.zeros(6, device=anywhere)).sum(), x, create_graph=True
    )
    with pytest.raises(NotImplementedError, match="second derivatives are not provided"):
        grad.sum().backward()


@by_case
def test_two_runs_give_the_same_bits(case, gpu):
    a, b = inputs(case, (5003, 1031), torch.float32, gpu)
    grad = torch.randn(5003, 1031, device=gpu)
    first = (case.ours(a, b), *gradients(case.ours, a, b, grad))
    second = (case.ours(a, b), *gradients(case.ours, a, b, grad))
    assert all(torch.equal(x, y) for x, y in zip(first, second, strict=True))
