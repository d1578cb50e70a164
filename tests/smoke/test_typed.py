"""Entry points by type: the same bits as the operators, one type each, no gradient."""

from inspect import signature

import pytest
import torch
from cases import DTYPES
from cases.case import copies, outputs
from exact import by_case, by_dtype

import fusedops
from fusedops.registry import OPS

SUFFIXES = dict(zip(DTYPES, ("fp32", "fp16", "bf16", "fp64"), strict=True))


def typed(case, dtype):
    function = getattr(fusedops, f"{case.op}_{SUFFIXES[dtype]}")
    return lambda *args: function(*args, **case.keywords)


@by_case
@by_dtype
def test_an_entry_point_gives_its_operators_bits(case, dtype, gpu):
    if dtype not in case.dtypes:
        pytest.skip(f"{case.name} is not for {dtype}")
    args = case.inputs(case.strided, dtype, gpu)
    strided = args[0].transpose(0, -1).contiguous().transpose(0, -1)
    for first in (args[0], strided):
        actual = outputs(typed(case, dtype)(*copies((first, *args[1:]))))
        expected = outputs(case.ours(first, *args[1:]))
        assert all(torch.equal(one, other) for one, other in zip(actual, expected, strict=True))


def test_the_module_has_every_operator_for_every_type():
    module = fusedops.status().module
    if module is None:
        pytest.skip("no extension module is loaded: the entry points are Python's")
    for op in OPS:
        for suffix in SUFFIXES.values() if op.public else ():
            actual = getattr(module, f"{op.name}_{suffix}")
            assert getattr(fusedops, f"{op.name}_{suffix}") is actual
            ours = signature(getattr(fusedops, op.name)).parameters.values()
            assert [(one.name, one.kind, one.default) for one in ours] == [
                (one.name, one.kind, one.default) for one in signature(actual).parameters.values()
            ]


def test_arguments_by_name(gpu):
    a, b = torch.randn(2, 40, 12, device=gpu)
    assert torch.equal(fusedops.bias_add_fp32(a, bias=b[0]), fusedops.bias_add(a, b[0]))
    assert torch.equal(fusedops.bias_add_fp32(bias=b[0], x=a), fusedops.bias_add(a, b[0]))


def test_entry_points_run_on_the_current_stream(gpu):
    a, b = torch.randn(2048, 1024, device=gpu), torch.randn(1024, device=gpu)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        y = fusedops.bias_gelu_fp32(a * 2, b)
    stream.synchronize()
    assert torch.equal(y, fusedops.bias_gelu(a * 2, b))


def test_results_are_freed(counted_gpu):
    a, b = torch.randn(1024, 1024, device=counted_gpu), torch.randn(1024, device=counted_gpu)
    fusedops.bias_add_fp32(a, b)
    before = torch.cuda.memory_allocated(counted_gpu)
    for _ in range(10):
        fusedops.bias_add_fp32(a, b)
    assert torch.cuda.memory_allocated(counted_gpu) == before


@by_case
def test_another_type_and_a_gradient_are_refused(case, anywhere):
    args = case.inputs(case.tiny, torch.float32, anywhere)
    says = rf"{case.op}_fp16: \w+: expected dtype float16, found float32"
    with pytest.raises((ValueError, RuntimeError), match=says):
        typed(case, torch.float16)(*args)
    with pytest.raises(RuntimeError, match=f"has no gradient; call fusedops.{case.op}"):
        typed(case, torch.float32)(args[0].requires_grad_(), *args[1:])


@pytest.mark.parametrize(
    ("args", "keywords"),
    [
        (1, {}),
        (3, {}),
        (2, {"approximate": 3}),
        (2, {"approximate": None}),
        (2, {"beta": 1.0}),
        (1, {"x": None}),
        (0, {"x": None, "bias": 3}),
    ],
)
def test_a_call_that_does_not_fit_is_refused(args, keywords, anywhere):
    x = torch.ones(2, 3, device=anywhere)
    with pytest.raises((TypeError, RuntimeError), match="bias_gelu"):
        fusedops.bias_gelu_fp32(*[x, x[0], "tanh"][:args], **keywords)
