"""Under autocast every operator gives the types and the bits that it gives outside."""

import pytest
import torch
from cases import PRIVATE
from cases.case import copies, outputs
from exact import (
    DIFFERENTIABLE,
    by_case_and_dtype,
    by_differentiable,
    by_dtype,
    by_operator,
)
from torch.utils._pytree import tree_leaves

import fusedops


def region(args, device):
    (dtype, *_) = [arg.dtype for arg in args if isinstance(arg, torch.Tensor) and _floats(arg)]
    other = torch.float16 if dtype == torch.bfloat16 else torch.bfloat16
    return torch.autocast(device.type, dtype=other)


def _floats(arg):
    return isinstance(arg, torch.Tensor) and arg.is_floating_point()


def asking(args):
    """The arguments, those that are floating asking for a gradient."""
    return [arg.detach().clone().requires_grad_() if _floats(arg) else arg for arg in args]


def results_and_gradients(function, args, grads):
    args = asking(args)
    results = outputs(function(*args))
    torch.autograd.backward(
        results, [grad.to(one) for grad, one in zip(grads, results, strict=True)]
    )
    return *(one.detach() for one in results), *(arg.grad for arg in args if _floats(arg))


def assert_same(actual, expected):
    pairs = zip(tree_leaves(actual), tree_leaves(expected), strict=True)
    for one, other in ((one, other) for one, other in pairs if one is not None):
        assert one.dtype == other.dtype
        assert torch.equal(one.nan_to_num(), other.nan_to_num())


@by_case_and_dtype()
def test_no_type_and_no_bit_of_a_result_changes(case, dtype, anywhere):
    args = case.inputs(case.small[-1], dtype, anywhere)
    expected = outputs(case.ours(*copies(args)))
    with region(args, anywhere):
        actual = outputs(case.ours(*copies(args)))
    assert_same(actual, expected)


@by_case_and_dtype()
def test_no_bit_changes_of_what_is_written_to_given_memory(case, dtype, anywhere):
    args = case.inputs(case.small[-1], dtype, anywhere)
    results = len(getattr(torch.ops.fusedops, case.op).default._schema.returns)

    def by_out():
        outs = tuple(torch.full_like(one, float("nan")) for one in made[:results])
        out = outs if results > 1 else outs[0]
        return outputs(case.function(*copies(args), **case.keywords, out=out))

    def by_workspace():
        workspace = fusedops.Workspace(
            128, 4, 2, 1, 2, 10, torch.float32, anywhere, results=1 << 18
        )
        return outputs(case.function(*copies(args), **case.keywords, workspace=workspace))

    with torch.no_grad():
        made = outputs(case.ours(*copies(args)))
        for call in (by_out, by_workspace):
            expected = call()
            with region(args, anywhere):
                actual = call()
            assert_same(actual, expected)


@by_operator(DIFFERENTIABLE)
def test_compiled(case, anywhere):
    torch._dynamo.reset()
    args = case.inputs(case.small[-1], torch.float32, anywhere)
    grads = [torch.randn(one.shape, device=anywhere) for one in outputs(case.ours(*args))]
    expected = results_and_gradients(case.ours, args, grads)
    compiled = torch.compile(case.ours, fullgraph=True, backend="aot_eager")
    with region(args, anywhere):
        actual = results_and_gradients(compiled, args, grads)
    assert_same(actual, expected)


@by_differentiable
@by_dtype
def test_no_bit_of_a_gradient_changes(case, dtype, anywhere):
    args = case.inputs(case.small[-1], dtype, anywhere)
    grads = [torch.randn(one.shape, device=anywhere) for one in outputs(case.ours(*args))]
    expected = results_and_gradients(case.ours, args, grads)
    with region(args, anywhere):
        actual = results_and_gradients(case.ours, args, grads)
    assert_same(actual, expected)


@pytest.mark.parametrize("name", PRIVATE)
def test_operators_that_are_not_public(name, anywhere):
    operator = getattr(torch.ops.fusedops, name)
    args, keywords = PRIVATE[name](anywhere)
    with torch.no_grad():
        plain = copies(args)
        expected = operator(*plain, **keywords)
        inside = copies(args)
        with region(args, anywhere):
            actual = operator(*inside, **keywords)
    assert_same((actual, inside), (expected, plain))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_prompt_and_its_step(dtype, anywhere):
    def run():
        workspace = fusedops.Workspace(96, 4, 2, 1, 2, 20, dtype, anywhere)
        prompt = fusedops.softmax_context(
            qkv[:, :9], mask[:, :9], workspace=workspace, layer_id=0, heads=4, rotary_dim=8
        )
        step = fusedops.softmax_context(
            qkv[:, 9:], mask, workspace=workspace, layer_id=0, heads=4, rotary_dim=8
        )
        return prompt, step.clone()

    qkv = torch.randn(2, 10, (4 + 2 + 2) * 24, device=anywhere).to(dtype)
    mask = torch.randn(2, 10, device=anywhere).to(dtype)
    with torch.no_grad():
        expected = run()
        with region([qkv], anywhere):
            actual = run()
    assert_same(actual, expected)
