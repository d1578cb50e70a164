"""Integer weights to floating ones; a shape is that of the result."""

import torch
from kernelbench.case import Case, Family, Operator, Shape, nbytes
from torch import Tensor

import fusedops

GROUPS = 64
SHAPES: tuple[Shape, ...] = ((16384, 16384), (8192, 4096), (4096, 4096), (4096, 1024))
QUICK: tuple[Shape, ...] = ((8192, 4096), (4096, 1024))


def _unpacked(weight: Tensor) -> Tensor:
    """Two 4-bit values of each byte, the low one first."""
    both = weight.view(torch.int8)
    return torch.stack(((both << 4) >> 4, both >> 4), -1).flatten(-2)


def _operator(bits: int) -> Operator:
    def make(shape: Shape, dtype: torch.dtype) -> Case:
        groups = min(GROUPS, shape[0])
        stored = (shape[0], shape[1] * bits // 8)

        def inputs(device: torch.device) -> tuple[Tensor, Tensor]:
            weight = torch.randint(0, 256, stored, device=device, dtype=torch.uint8)
            return weight if bits == 4 else weight.view(torch.int8), torch.rand(
                groups, device=device
            )

        def eager(weight: Tensor, scale: Tensor) -> Tensor:
            whole = _unpacked(weight) if bits == 4 else weight
            grouped = whole.view(groups, -1, shape[1])
            return (grouped * scale[:, None, None]).to(dtype).view(shape)

        return Case(
            "dequantize",
            shape,
            dtype,
            inputs=inputs,
            ours=lambda weight, scale: fusedops.dequantize(weight, scale, dtype=dtype),
            peers={"eager": eager},
            bytes_moved=nbytes(torch.int8, stored) + nbytes(dtype, shape),
            way=f"int{bits}",
        )

    return Operator("dequantize", make, SHAPES, QUICK)


FAMILY = Family("dequantize", (_operator(8), _operator(4)))
