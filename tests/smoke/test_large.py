"""More than 2^31 elements."""

import pytest
import torch
from cases import CASES
from cases.case import outputs

import fusedops

ROWS = 1032  # of 8: a row lies as far off 16 bytes each time
by_case = pytest.mark.parametrize(
    "case", [case for case in CASES if case.rowwise], ids=lambda case: case.name
)


@by_case
@pytest.mark.parametrize("cols", [4096, 4097])
def test_more_than_2_31_elements(case, cols, gpu):
    """The same rows again and again give the same results again and again."""
    args = case.inputs((ROWS, cols), torch.bfloat16, gpu)
    times = (1 << 31) // (ROWS * cols) + 2
    repeated = [isinstance(arg, torch.Tensor) and arg.shape[0] == ROWS for arg in args]
    needed = 5 * times * ROWS * cols * 2 * (2 + sum(repeated))
    if torch.cuda.mem_get_info(gpu)[0] < needed // 2:
        pytest.skip(f"less than {needed >> 31} GiB of GPU memory free")
    few = outputs(case.ours(*args))
    many = outputs(
        case.ours(
            *(
                arg.repeat(times, *[1] * (arg.dim() - 1)) if again else arg
                for arg, again in zip(args, repeated, strict=True)
            )
        )
    )
    for one, expected in zip(many, few, strict=True):
        for at in range(times):
            assert torch.equal(one[at * ROWS : (at + 1) * ROWS], expected), at
    del many, one
    torch.cuda.empty_cache()


def test_gradient_of_more_than_2_31_elements(gpu):
    if torch.cuda.mem_get_info(gpu)[0] < 20 << 30:
        pytest.skip("less than 20 GiB of GPU memory free")
    cols = 4097
    rows = (1 << 31) // cols + 129
    bias = torch.randn(cols, device=gpu).bfloat16()
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
