"""What is timed: operators, shapes, dtypes, and the same computation in plain PyTorch."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

import fusedops


@dataclass(frozen=True)
class Case:
    """One operator, and its eager equivalent that torch.compile gets too."""

    op: str
    ours: Callable[[Tensor, Tensor], Tensor]
    eager: Callable[[Tensor, Tensor], Tensor]
    has_bias: bool = True

    def inputs(self, shape: tuple[int, int], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Fresh random arguments."""
        second = shape[1:] if self.has_bias else shape
        first = torch.randn(shape, device="cuda", dtype=dtype)
        return first, torch.randn(second, device="cuda", dtype=dtype)

    def bytes_moved(self, shape: tuple[int, int], dtype: torch.dtype) -> int:
        """The fewest bytes: every input read once, the output written once."""
        elements = shape[0] * shape[1]
        return (2 * elements + (shape[1] if self.has_bias else elements)) * dtype.itemsize


CASES = (
    Case(
        "bias_gelu",
        fusedops.bias_gelu,
        lambda x, b: F.gelu(x + b, approximate="tanh"),
    ),
    Case("bias_add", fusedops.bias_add, lambda x, b: x + b),
    Case("bias_relu", fusedops.bias_relu, lambda x, b: torch.relu(x + b)),
    Case(
        "vector_add",
        lambda a, b: fusedops.vector_add(a, b, gamma=0.5),
        lambda a, b: torch.add(b, a, alpha=0.5),
        has_bias=False,
    ),
)
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
# Large; 64 MiB in 16 bits, and with odd rows; middle; small.
SHAPES = ((16384, 16384), (8192, 4096), (8192, 4097), (2048, 4096), (32, 4096))


def peers(case: Case) -> dict[str, Callable[[Tensor, Tensor], Tensor]]:
    """The eager computation, and compiled in both modes. Compilation starts at the first call."""
    torch.compiler.reset()
    compiled = torch.compile(case.eager, dynamic=False, fullgraph=True)
    tuned = torch.compile(
        case.eager, dynamic=False, fullgraph=True, mode="max-autotune-no-cudagraphs"
    )
    return {"eager": case.eager, "compile": compiled, "max-autotune": tuned}
