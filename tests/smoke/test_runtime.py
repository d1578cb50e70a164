"""Streams, graphs, compilation, and torch's own check of an operator."""

import shutil

import pytest
import torch
from exact import CASES, assert_close, inputs

import fusedops
from fusedops.schemas import OPS

by_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@by_case
def test_runs_on_the_current_stream(case, gpu):
    a, b = inputs(case, (2048, 1024), torch.float32, gpu)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)  # what follows on another stream would be far ahead
        late = a * 2
        y = case.ours(late, b)
    stream.synchronize()
    assert_close(y, case.exact(a.double() * 2, b.double()), torch.float32)


@by_case
def test_is_captured_in_a_graph(case, gpu):
    a, b = inputs(case, (64, 1000), torch.float16, gpu)
    case.ours(a, b)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = case.ours(a, b)
    a.copy_(torch.randn_like(a))
    graph.replay()
    torch.cuda.synchronize()
    assert_close(y, case.exact(a.double(), b.double()), torch.float16)


def test_gradients_are_captured_in_a_graph(gpu):
    grad, x = torch.randn(2, 64, 1000, device=gpu).unbind()
    bias = torch.randn(1000, device=gpu)
    expected = torch.ops.fusedops.bias_gelu_backward(grad, x, bias)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = torch.ops.fusedops.bias_gelu_backward(grad, x, bias)
    graph.replay()
    torch.cuda.synchronize()
    assert all(torch.equal(f, e) for f, e in zip(found, expected, strict=True))


@by_case
def test_compiles_in_one_graph(case, anywhere):
    def model(a, b):
        return case.ours(a * 2, b) + 1

    a, b = inputs(case, (6, 40), torch.float32, anywhere)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    found = compiled(a.requires_grad_(), b)
    torch.testing.assert_close(found, model(a, b))
    found.sum().backward()
    assert a.grad.shape == a.shape


def test_compiles_with_inductor(gpu):
    pytest.importorskip("triton", reason="torch.compile's default backend needs triton")
    if not (shutil.which("cc") or shutil.which("gcc")):
        pytest.skip("torch.compile's default backend needs a C compiler")

    def model(x, b):
        return fusedops.bias_gelu(x * 2, b) + 1

    x, b = inputs(CASES[3], (64, 512), torch.float32, gpu)
    torch.testing.assert_close(torch.compile(model, fullgraph=True)(x, b), model(x, b))


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_torchs_own_check(op, anywhere):
    names = op.signature[1:].split(")")[0].split(", *")[0].split(", ")
    shapes = {"bias": (40,)}
    arguments = [
        torch.randn(shapes.get(name.split()[1], (6, 40)), device=anywhere, requires_grad=op.public)
        for name in names
    ]
    torch.library.opcheck(getattr(torch.ops.fusedops, op.name).default, tuple(arguments))
