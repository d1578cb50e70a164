"""Gradients against float64, gradcheck, and the same bits twice."""

from functools import partial

import pytest
import torch
from cases.case import outputs, randn, wide
from exact import (
    DIFFERENTIABLE,
    by_differentiable,
    by_dtype,
    by_operator,
    laid_out_otherwise,
    poison,
    relative_error,
)
from torch.utils.checkpoint import checkpoint

import fusedops


def gradients(function, args, grads, how=torch.autograd.grad):
    """Of all floating arguments."""
    args = [
        arg.detach().requires_grad_()
        if isinstance(arg, torch.Tensor) and arg.is_floating_point()
        else arg
        for arg in args
    ]
    needs_grad = [arg for arg in args if isinstance(arg, torch.Tensor) and arg.requires_grad]
    return how(outputs(function(*args)), needs_grad, grads)


def check(case, args, dtype, grads=None):
    exact_grads = [randn(tuple(one.shape), dtype, one.device) for one in outputs(case.ours(*args))]
    grads = grads or exact_grads
    poison([arg for arg in args if isinstance(arg, torch.Tensor)])
    actual = gradients(case.ours, args, grads)
    exact = gradients(case.exact, wide(args), wide(grads))
    scale = max(grad.double().norm().item() for grad in grads)
    for one, truth in zip(actual, exact, strict=True):
        assert one.dtype == dtype
        assert one.shape == truth.shape
        bound = max(torch.finfo(dtype).eps, 1e-13) * case.gradient_ulps
        if dtype != torch.float64:
            bound += case.slope_error(scale)
        assert relative_error(one, truth, scale) < bound


@by_differentiable
@by_dtype
def test_gradients_on_the_cpu(case, dtype):
    if dtype in case.dtypes:
        for shape in (*case.empty, *case.small):
            check(case, case.inputs(shape, dtype, torch.device("cpu")), dtype)


@by_differentiable
@by_dtype
def test_gradients_on_the_gpu(case, dtype, gpu):
    if dtype in case.dtypes:
        for shape in (*case.empty, *case.small, *case.backward):
            check(case, case.inputs(shape, dtype, gpu), dtype)


@by_operator(DIFFERENTIABLE)
def test_gradient_of_views(case, anywhere):
    args = case.inputs(case.strided, torch.float16, anywhere)
    results = outputs(case.ours(*args))
    for view in laid_out_otherwise(args[0]):
        check(case, (view, *args[1:]), torch.float16)
    for view in laid_out_otherwise(torch.randn_like(results[0])):
        check(case, args, torch.float16, [view, *map(torch.randn_like, results[1:])])
    ones = [torch.ones((), device=anywhere).half().expand(one.shape) for one in results]
    check(case, args, torch.float16, ones)


@by_operator(DIFFERENTIABLE)
def test_gradcheck(case, anywhere):
    if torch.float64 not in case.dtypes:
        pytest.skip("not for float64")
    args = case.inputs(case.tiny, torch.float64, anywhere)
    for arg in args:
        if isinstance(arg, torch.Tensor) and arg.is_floating_point():
            arg.requires_grad_()
    assert torch.autograd.gradcheck(case.ours, args)


@by_differentiable
@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpointed_call_gives_the_same_gradients(case, reentrant, anywhere):
    """torch computes what was saved again, and lets a backward pass read it once."""

    def backward(results, tensors, grads):
        torch.autograd.backward(results, grads)
        return [tensor.grad for tensor in tensors]

    args = case.inputs(case.small[-1], torch.float32, anywhere)
    grads = [torch.randn_like(one) for one in outputs(case.ours(*args))]
    expected = gradients(case.ours, args, grads)
    call = partial(checkpoint, case.ours, use_reentrant=reentrant)
    actual = gradients(call, args, grads, backward)
    assert all(torch.equal(*both) for both in zip(actual, expected, strict=True))


@by_differentiable
def test_gradients_of_a_batch(case, anywhere):
    """As torch.autograd.functional.jacobian(vectorize=True) asks for them."""
    args = case.inputs(case.small[-1], torch.float32, anywhere)
    results = outputs(case.ours(*args))
    several = [[torch.randn_like(one) for one in results] for _ in range(3)]
    batch = partial(torch.autograd.grad, is_grads_batched=True)
    found = gradients(case.ours, args, list(map(torch.stack, zip(*several, strict=True))), batch)
    for i, grads in enumerate(several):
        expected = gradients(case.ours, args, grads)
        for one, other in zip(found, expected, strict=True):
            bound = 3e-5 + case.slope_error(other.norm().item())
            assert relative_error(one[i], other) <= bound


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


@by_differentiable
def test_two_runs_give_the_same_bits(case, gpu):
    args = case.inputs(case.backward[-1], torch.float32, gpu)
    grads = [torch.randn_like(one) for one in outputs(case.ours(*args))]
    first, second = (
        (*outputs(case.ours(*args)), *gradients(case.ours, args, grads)) for _ in range(2)
    )
    assert all(torch.equal(x, y) for x, y in zip(first, second, strict=True))
