"""More than 2^31 elements."""

import pytest
import torch
from exact import CASES, assert_close, inputs

import fusedops

CHUNK = 1 << 26


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("cols", [4096, 4097])
def test_more_than_2_31_elements(case, cols, gpu):
    needed = 20 << 30
    if torch.cuda.mem_get_info(gpu)[0] < needed:
        pytest.skip("less than 20 GiB of GPU memory free")
    rows = (1 << 31) // cols + 129
    block = torch.randn(1 << 24, device=gpu).bfloat16()
    x = torch.empty(rows * cols, dtype=torch.bfloat16, device=gpu)
    for start in range(0, x.numel(), block.numel()):
        x[start : start + block.numel()] = block[: x.numel() - start].roll(start >> 20)
    x = x.view(rows, cols)
    b = torch.randn(cols, device=gpu).bfloat16() if case.has_bias else x.flip(0)
    y = case.ours(x, b)
    step = CHUNK // cols
    # Both ends, both sides of 2^31, and every sixteenth chunk between.
    starts = {0, rows - step, (1 << 31) // cols - step // 2, *range(0, rows - step, 16 * step)}
    for start in sorted(starts):
        part = slice(start, start + step)
        second = b.double() if case.has_bias else b[part].double()
        assert_close(y[part], case.exact(x[part].double(), second), torch.bfloat16)
    del x, y, b
    torch.cuda.empty_cache()


def test_gradient_of_more_than_2_31_elements(gpu):
    if torch.cuda.mem_get_info(gpu)[0] < 20 << 30:
        pytest.skip("less than 20 GiB of GPU memory free")
    cols = 4097
    rows = (1 << 31) // cols + 129
    bias, _ = inputs(CASES[1], (cols,), torch.bfloat16, gpu)
    x = torch.zeros(rows, cols, dtype=torch.bfloat16, device=gpu)
    grad = torch.ones((), dtype=torch.bfloat16, device=gpu).expand(rows, cols)
    grad_x, grad_bias = torch.ops.fusedops.bias_relu_backward(grad, x, bias)
    expected = (bias > 0).to(torch.bfloat16)
    assert torch.equal(grad_x[-1], expected)
    assert torch.equal(grad_x[rows // 2], expected)
    assert torch.equal(grad_bias, (expected.double() * rows).to(torch.bfloat16))
    del x, grad_x
    torch.cuda.empty_cache()


def test_vector_add_is_exact_at_the_far_end(gpu):
    a = torch.zeros((1 << 31) + 5, dtype=torch.bfloat16, device=gpu)
    a[-1] = 3
    assert fusedops.vector_add(a, a, gamma=2.0)[-1].item() == 9
    torch.cuda.empty_cache()
