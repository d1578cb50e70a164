"""Streams, graphs, compilation, vmap, and torch's own check of an operator."""

import shutil

import pytest
import torch
from cases import PRIVATE
from cases.case import outputs, wide
from exact import assert_close, by_case, by_operator

import fusedops


def opcheck(name, args, keywords):
    torch.library.opcheck(getattr(torch.ops.fusedops, name).default, args, dict(keywords))


def doubled(args):
    """The floating tensors times two, by kernels of torch on the current stream."""
    return [
        arg * 2 if isinstance(arg, torch.Tensor) and arg.is_floating_point() else arg
        for arg in args
    ]


@by_case
def test_runs_on_the_current_stream(case, gpu):
    args = case.inputs(case.backward[-1], torch.float32, gpu)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)  # what follows on another stream would be far ahead
        actual = case.ours(*doubled(args))
    stream.synchronize()
    assert_close(actual, case.exact(*wide(doubled(args))), torch.float32, case)


@by_case
def test_is_captured_in_a_graph(case, gpu):
    args = case.inputs(case.strided, torch.float16, gpu)
    case.ours(*args)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        actual = case.ours(*args)
    args[0].copy_(case.inputs(case.strided, torch.float16, gpu)[0])
    graph.replay()
    torch.cuda.synchronize()
    assert_close(actual, case.exact(*wide(args)), torch.float16, case)


def test_gradients_are_captured_in_a_graph(gpu):
    grad, x = torch.randn(2, 64, 1000, device=gpu).unbind()
    bias = torch.randn(1000, device=gpu)
    expected = torch.ops.fusedops.bias_gelu_backward(grad, x, bias)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        actual = torch.ops.fusedops.bias_gelu_backward(grad, x, bias)
    graph.replay()
    torch.cuda.synchronize()
    assert all(torch.equal(f, e) for f, e in zip(actual, expected, strict=True))


@by_operator()
def test_compiles_in_one_graph(case, anywhere):
    torch._dynamo.reset()  # the cases are many, and recompilations of one function are limited

    def model(*args):
        return [one + 1 for one in outputs(case.ours(*doubled(args)))]

    args = case.inputs(case.strided, torch.float32, anywhere)
    if case.differentiable:
        args[0].requires_grad_()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager", dynamic=True)
    actual = compiled(*args)
    torch.testing.assert_close(actual, model(*args))
    if case.differentiable:
        sum(one.sum() for one in actual).backward()
        assert args[0].grad.shape == args[0].shape


def test_compiles_with_inductor(gpu):
    pytest.importorskip("triton", reason="torch.compile's default backend needs triton")
    if not (shutil.which("cc") or shutil.which("gcc")):
        pytest.skip("torch.compile's default backend needs a C compiler")

    def model(x, b):
        return fusedops.bias_gelu(x * 2, b) + 1

    x, b = torch.randn(64, 512, device=gpu), torch.randn(512, device=gpu)
    torch.testing.assert_close(torch.compile(model, fullgraph=True)(x, b), model(x, b))


@by_case
def test_vmap_is_a_loop(case, anywhere):
    if not case.vmap:
        pytest.skip(f"{case.op} has no rule for vmap")
    each = [case.inputs(case.tiny, torch.float32, anywhere) for _ in range(3)]
    expected = [outputs(case.ours(*args)) for args in each]
    stacked = [torch.stack(tensors, 1) for tensors in zip(*each, strict=True)]
    actual = outputs(torch.vmap(case.ours, in_dims=1)(*stacked))
    for at, one in enumerate(actual):
        torch.testing.assert_close(one, torch.stack([results[at] for results in expected]))
    rows = torch.vmap(lambda x: case.ours(x, *each[0][1:]))(torch.stack([a[0] for a in each]))
    assert outputs(rows)[0].shape == outputs(actual)[0].shape


@by_operator()
def test_torchs_own_check(case, anywhere):
    """In float32, and with the gradients where there are any."""
    args = case.inputs(case.strided, torch.float32, anywhere)
    if case.differentiable:
        for arg in args:
            if isinstance(arg, torch.Tensor) and arg.is_floating_point():
                arg.requires_grad_()
    opcheck(case.op, args, case.keywords)


@pytest.mark.parametrize("name", PRIVATE)
def test_torchs_own_check_of_what_is_not_public(name, anywhere):
    opcheck(name, *PRIVATE[name](anywhere))
