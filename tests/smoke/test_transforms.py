"""torch.func: grad, vjp, jacrev and vmap give what autograd gives, or say that they cannot."""

from dataclasses import replace

import pytest
import torch
from cases import CASES
from cases.case import outputs
from exact import by_case, by_differentiable, relative_error
from torch.func import functionalize, grad, hessian, jacfwd, jacrev, jvp, vjp, vmap

import fusedops


def floating(args):
    return [i for i, arg in enumerate(args) if torch.is_tensor(arg) and arg.is_floating_point()]


def of_floating(case, args):
    """The call as a function of the floating arguments alone; it gives a tuple."""
    at = floating(args)

    def function(*tensors):
        others = list(args)
        for i, tensor in zip(at, tensors, strict=True):
            others[i] = tensor
        return outputs(case.ours(*others))

    return function, tuple(args[i] for i in at)


def by_autograd(function, tensors, grads):
    tensors = [tensor.detach().requires_grad_() for tensor in tensors]
    return torch.autograd.grad(function(*tensors), tensors, grads, allow_unused=True)


def same(actual, expected):
    # torch.func gives zeros where autograd gives None.
    return all(
        not one.any() if other is None else torch.equal(one, other)
        for one, other in zip(actual, expected, strict=True)
    )


def nearly(case, actual, expected):
    """Equal but for the order of sums, so by the norm: an element may be what many cancel to."""
    bound = 3e-5 + case.slope_error(expected.norm().item())
    return relative_error(actual, expected) <= bound


@by_differentiable
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_vjp_is_autograds(case, dtype, anywhere):
    function, tensors = of_floating(case, case.inputs(case.small[-1], dtype, anywhere))
    results, pull_back = vjp(function, *tensors)
    grads = tuple(map(torch.randn_like, results))
    assert same(pull_back(grads), by_autograd(function, tensors, grads))


@by_differentiable
def test_vjps_of_a_batch(case, anywhere):
    """As jacrev takes them: a batch of gradients of one call."""
    function, tensors = of_floating(case, case.inputs(case.small[-1], torch.float32, anywhere))
    results, pull_back = vjp(function, *tensors)
    batch = [tuple(map(torch.randn_like, results)) for _ in range(3)]
    found = vmap(pull_back)(tuple(map(torch.stack, zip(*batch, strict=True))))
    for i, grads in enumerate(batch):
        for one, other in zip(found, by_autograd(function, tensors, grads), strict=True):
            assert other is None or nearly(case, one[i], other)


@by_differentiable
def test_gradients_of_each_of_a_batch(case, anywhere):
    if not case.vmap:
        pytest.skip(f"{case.op} has no rule for vmap")
    several = [case.inputs(case.small[-1], torch.float32, anywhere) for _ in range(2)]
    at = floating(several[0])

    def loss(function):
        return lambda *tensors: sum(one.square().sum() for one in function(*tensors))

    function, _ = of_floating(case, several[0])
    stacked = [torch.stack([args[i] for args in several]) for i in at]
    found = vmap(grad(loss(function), tuple(range(len(at)))))(*stacked)
    for i, args in enumerate(several):
        tensors = tuple(args[j] for j in at)
        for one, other in zip(
            found, grad(loss(function), tuple(range(len(at))))(*tensors), strict=True
        ):
            assert nearly(case, one[i], other)


@by_differentiable
def test_gradients_where_one_argument_is_batched(case, anywhere):
    """Along its last dimension; the other arguments are every element's."""
    if not case.vmap:
        pytest.skip(f"{case.op} has no rule for vmap")
    args = case.inputs(case.tiny, torch.float32, anywhere)
    function, tensors = of_floating(case, args)
    every = tuple(range(len(tensors)))
    gradients = grad(lambda *some: sum(one.square().sum() for one in function(*some)), every)
    for index, tensor in enumerate(tensors):
        several = [tensor, tensor * 0.5, tensor.flip(0)]
        given = [*tensors[:index], torch.stack(several, -1), *tensors[index + 1 :]]
        dims = tuple(-1 if at == index else None for at in every)
        found = vmap(gradients, in_dims=dims)(*given)
        for i, one in enumerate(several):
            expected = gradients(*tensors[:index], one, *tensors[index + 1 :])
            for actual, other in zip(found, expected, strict=True):
                assert nearly(case, actual[i], other)


@pytest.mark.parametrize("case", [case for case in CASES if case.vmap], ids=lambda case: case.name)
def test_an_empty_batch_gives_empty_results(case, anywhere):
    args = case.inputs(case.tiny, torch.float32, anywhere)
    expected = outputs(case.ours(*args))
    for index in floating(args):
        given = list(args)
        given[index] = args[index].new_empty(0, *args[index].shape)
        dims = tuple(0 if at == index else None for at in range(len(args)))
        found = outputs(vmap(case.ours, in_dims=dims)(*given))
        for one, other in zip(found, expected, strict=True):
            assert one.shape == (0, *other.shape)
            assert one.dtype == other.dtype


@by_case
def test_functionalize_changes_nothing(case, anywhere):
    if getattr(torch.ops.fusedops, case.op).default._schema.is_mutable:
        pytest.skip("torch functionalizes no operator of ours that writes to its arguments")
    args = case.inputs(case.tiny, torch.float32, anywhere)
    at = [i for i, arg in enumerate(args) if torch.is_tensor(arg)]

    def function(*tensors):
        others = list(args)
        for i, tensor in zip(at, tensors, strict=True):
            others[i] = tensor
        return case.ours(*others)

    found = outputs(functionalize(function)(*(args[i] for i in at)))
    assert all(torch.equal(*both) for both in zip(found, outputs(case.ours(*args)), strict=True))


LINEAR = {
    *("vector_add", "bias_add", "bias_residual", "residual_add_bias", "moe_res_matmul"),
    *("apply_rotary_pos_emb", "add_padding", "pad_transform"),
    *("vector_matmul", "linear_layer", "einsum_sec_sm_ecm"),
}
"""The operators that are linear in each argument, or products of two."""


@by_differentiable
def test_second_derivatives_are_right_or_refused(case, anywhere):
    args = case.inputs(case.tiny, torch.float64, anywhere)
    function, tensors = of_floating(case, args)
    exact, _ = of_floating(replace(case, function=case.exact, keywords={}), args)

    def cubes(function):
        return lambda *tensors: sum(one.pow(3).sum() for one in function(*tensors))

    twice = jacrev(jacrev(cubes(function)))
    try:
        found, refused = twice(*tensors), ""
    except NotImplementedError as error:
        found, refused = None, str(error)
    if refused:
        assert "second derivatives are not provided" in refused
        assert case.op not in LINEAR
    else:
        torch.testing.assert_close(found, jacrev(jacrev(cubes(exact)))(*tensors))


@by_differentiable
def test_forward_mode_is_refused_in_words(case, anywhere):
    function, tensors = of_floating(case, case.inputs(case.tiny, torch.float32, anywhere))
    for transform in (jacfwd, hessian):
        with pytest.raises(NotImplementedError, match="has no derivative in forward mode"):
            transform(lambda x: function(x, *tensors[1:])[0].sum())(tensors[0])
    with pytest.raises(NotImplementedError, match="has no derivative in forward mode"):
        jvp(function, tensors, tensors)


@pytest.mark.parametrize("tokens", [1, 4])
def test_vmap_of_what_keeps_a_cache_is_refused(tokens, anywhere):
    workspace = fusedops.Workspace(16, 2, 2, 1, 2, 10, torch.float32, anywhere)
    qkv = torch.randn(3, 2, tokens, 48, device=anywhere)
    kept = [one.nan_to_num() for one in (*workspace.memory.keys, workspace.positions)]

    def attend(qkv):
        return fusedops.softmax_context(qkv, workspace=workspace, layer_id=0, heads=2)

    for transform in (vmap(attend), vmap(grad(lambda x: attend(x).sum()))):
        with pytest.raises(RuntimeError, match=r"^softmax_context: writes to a .*KV cache"):
            transform(qkv)
    with pytest.raises(RuntimeError, match=r"vmap cannot give each element; give it the batch$"):
        vmap(attend)(qkv)
    after = [one.nan_to_num() for one in (*workspace.memory.keys, workspace.positions)]
    assert all(torch.equal(*both) for both in zip(after, kept, strict=True))
    assert workspace.tokens == 0


def test_int8_weights_have_no_gradient_and_say_so(anywhere):
    weight, scale = fusedops.quantize(torch.randn(24, 8, device=anywhere), 2)

    def loss(x):
        return fusedops.vector_matmul_int8(x, weight, scale).sum()

    x = torch.randn(4, 24, device=anywhere, requires_grad=True)
    for backward in (lambda: grad(loss)(x.detach()), lambda: loss(x).backward()):
        with pytest.raises(NotImplementedError, match="int8 weights have no gradient"):
            backward()
