"""What the operators must compute, in float64, and how far a result may be from it."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

import fusedops

DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


def gelu(v: Tensor, approximate: str) -> Tensor:
    """GELU without cancellation: v times a probability."""
    if approximate == "none":
        return 0.5 * v * torch.special.erfc(-v * math.sqrt(0.5))
    return v * torch.sigmoid(2 * math.sqrt(2 / math.pi) * (v + 0.044715 * v**3))


@dataclass(frozen=True)
class Case:
    """One call of a public operator: ours, and the truth in float64."""

    name: str
    ours: Callable[[Tensor, Tensor], Tensor]
    exact: Callable[[Tensor, Tensor], Tensor]
    has_bias: bool = True

    def second_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the second argument beside a first one of `shape`."""
        return shape[-1:] if self.has_bias else shape


CASES = (
    Case(
        "vector_add",
        lambda a, b: fusedops.vector_add(a, b, gamma=-1.75),
        lambda a, b: -1.75 * a + b,
        has_bias=False,
    ),
    Case("bias_add", fusedops.bias_add, lambda x, b: x + b),
    Case("bias_relu", fusedops.bias_relu, lambda x, b: torch.relu(x + b)),
    Case("bias_gelu", fusedops.bias_gelu, lambda x, b: gelu(x + b, "tanh")),
    Case(
        "bias_gelu erf",
        lambda x, b: fusedops.bias_gelu(x, b, approximate="none"),
        lambda x, b: gelu(x + b, "none"),
    ),
)


def inputs(
    case: Case, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Fresh random arguments, spread over the interesting range of the activations."""
    first = torch.randn(shape, device=device, dtype=torch.float64) * 2.5
    second = torch.randn(case.second_shape(shape), device=device, dtype=torch.float64)
    return first.to(dtype), second.to(dtype)


def fell_back() -> bool:
    """Whether plain PyTorch runs on the GPU: nothing is prebuilt and nothing could be built."""
    return any(one.way == "fallback" for one in fusedops.status().operators)


def assert_close(found: Tensor, exact: Tensor, dtype: torch.dtype) -> None:
    """Every element is within a rounding of `dtype` and the arithmetic's own error of the truth.

    16-bit results are rounded once: half an ulp and a little. float32's sum x + b is rounded before
    the activation, which magnifies it in the negative tail, so its bound is absolute there; and
    torch's GELU, which is the reference, loses digits there by cancellation.
    """
    assert found.dtype == dtype
    assert found.shape == exact.shape
    assert found.is_contiguous()
    if found.numel() == 0:
        return
    relative, absolute = {
        torch.float32: (1e-6, 1e-6),
        torch.float16: (0.51 * 2**-10, 2e-7),
        torch.bfloat16: (0.51 * 2**-7, 1e-7),
        torch.float64: (1e-13, 1e-15),
    }[dtype]
    if (found.device.type == "cpu" or fell_back()) and dtype != torch.float64:
        # F.gelu's vectorised erf is off by 1.3e-6 at most (20 M points between -12 and 12).
        absolute = 2e-6
    error = (found.double() - exact).abs()
    bound = relative * exact.abs() + absolute
    worst = int((error - bound).nan_to_num(nan=math.inf).argmax())
    assert bool((error <= bound).all()), (
        f"{dtype}: element {worst} of {list(exact.shape)} is {found.flatten()[worst].item()!r}, "
        f"exact {exact.flatten()[worst].item()!r}"
    )


def poison(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> None:
    """Fill with NaN the memory that torch's allocator gives out next for such a tensor."""
    blocks = [torch.full(shape, math.nan, dtype=dtype, device=device) for _ in range(3)]
    del blocks
