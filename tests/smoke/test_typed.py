"""Entry points by type: the same bits as the operators, one type each, no gradient."""

import pytest
import torch
from exact import CASES, DTYPES, inputs

import fusedops

SUFFIXES = {
    torch.float32: "fp32",
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
    torch.float64: "fp64",
}
# The cases without other arguments than two tensors.
PLAIN = [case for case in CASES if case.name in ("bias_add", "bias_relu", "bias_gelu")]
by_case = pytest.mark.parametrize("case", PLAIN, ids=lambda case: case.name)
by_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype).split(".")[1])


def typed(name: str, dtype: torch.dtype):
    return getattr(fusedops, f"{name}_{SUFFIXES[dtype]}")


@by_case
@by_dtype
def test_an_entry_point_gives_its_operators_bits(case, dtype, gpu):
    a, b = inputs(case, (33, 1001), dtype, gpu)
    assert torch.equal(typed(case.name, dtype)(a, b), case.ours(a, b))
    assert torch.equal(typed(case.name, dtype)(a.t().contiguous().t(), bias=b), case.ours(a, b))


def test_keywords_of_entry_points(gpu):
    a, b = torch.randn(2, 40, 12, device=gpu)
    assert torch.equal(
        fusedops.vector_add_fp32(a, b, gamma=2.5), fusedops.vector_add(a, b, gamma=2.5)
    )
    assert torch.equal(
        fusedops.bias_gelu_fp32(a, b[0], approximate="none"),
        fusedops.bias_gelu(a, b[0], approximate="none"),
    )


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
    a, b = inputs(case, (3, 5), torch.float32, anywhere)
    says = f"{case.name}_fp16: x: expected dtype float16, found float32"
    with pytest.raises((ValueError, RuntimeError), match=says):
        typed(case.name, torch.float16)(a, b)
    with pytest.raises(RuntimeError, match=f"has no gradient; call fusedops.{case.name}"):
        typed(case.name, torch.float32)(a.requires_grad_(), b)


def test_what_is_no_tensor_is_refused(anywhere):
    with pytest.raises((TypeError, RuntimeError)):
        fusedops.bias_add_fp32(torch.ones(2, 3, device=anywhere), 3)
