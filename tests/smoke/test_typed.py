"""Entry points by type: the same bits as the operators, one type each, no gradient."""

import pytest
import torch
from cases import DTYPES
from cases.case import outputs
from exact import by_case, by_dtype

import fusedops

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
    turned = args[0].transpose(0, -1).contiguous().transpose(0, -1)
    for first in (args[0], turned):
        found = outputs(typed(case, dtype)(first, *args[1:]))
        expected = outputs(case.ours(first, *args[1:]))
        assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


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


def test_results_are_freed(gpu):
    a, b = torch.randn(1024, 1024, device=gpu), torch.randn(1024, device=gpu)
    fusedops.bias_add_fp32(a, b)
    before = torch.cuda.memory_allocated(gpu)
    for _ in range(10):
        fusedops.bias_add_fp32(a, b)
    assert torch.cuda.memory_allocated(gpu) == before


@by_case
def test_another_type_and_a_gradient_are_refused(case, anywhere):
    args = case.inputs(case.tiny, torch.float32, anywhere)
    says = rf"{case.op}_fp16: \w+: expected dtype float16, found float32"
    with pytest.raises((ValueError, RuntimeError), match=says):
        typed(case, torch.float16)(*args)
    with pytest.raises(RuntimeError, match=f"has no gradient; call fusedops.{case.op}"):
        typed(case, torch.float32)(args[0].requires_grad_(), *args[1:])


def test_what_is_no_tensor_is_refused(anywhere):
    with pytest.raises((TypeError, RuntimeError)):
        fusedops.bias_add_fp32(torch.ones(2, 3, device=anywhere), 3)
