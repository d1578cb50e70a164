"""A product with an int8 weight; a shape is rows x width x inner width.

The other forms for such weights run on the same kernel, or on dequantize and the dense forms.
"""

import torch
from kernelbench.case import HALVES, Case, Operator, Shape, nbytes, normal
from torch import Tensor

import fusedops

GROUPS = 64
SHAPES: tuple[Shape, ...] = tuple((rows, 4096, 14336) for rows in (1, 8, 16, 128, 1024))


def _vector_matmul_int8(shape: Shape, dtype: torch.dtype) -> Case:
    rows, width, inner = shape
    groups = min(GROUPS, width)

    def inputs(device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
        (x,) = normal((rows, width), dtype=dtype)(device)
        weight = torch.randint(0, 256, (width, inner), device=device, dtype=torch.uint8)
        return x, weight.view(torch.int8), torch.rand(groups, device=device) * 1e-4

    def eager(x: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
        grouped = weight.view(groups, -1, inner) * scale[:, None, None]
        return x @ grouped.to(dtype).view(width, inner)

    return Case(
        "vector_matmul_int8",
        shape,
        dtype,
        inputs=inputs,
        ours=fusedops.vector_matmul_int8,
        peers={"eager": eager},
        bytes_moved=nbytes(torch.int8, (width, inner)) + nbytes(dtype, (rows, width + inner)),
        by_time=True,
    )


VECTOR_MATMUL_INT8 = Operator(
    "vector_matmul_int8", _vector_matmul_int8, SHAPES, (SHAPES[1], SHAPES[4]), (2, 16, 32), HALVES
)
