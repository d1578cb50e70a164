"""A bias and an activation."""

from collections.abc import Sequence

import torch
from kernelbench.case import ROWS, Call, Case, Family, Operator, Shape, nbytes, normal
from torch.nn import functional

import fusedops


def _operator(
    name: str, way: str, ours: Call, eager: Call, shapes: Sequence[Shape] = ROWS
) -> Operator:
    def make(shape: Shape, dtype: torch.dtype) -> Case:
        bias = shape[-1:]
        return Case(
            name,
            shape,
            dtype,
            inputs=normal(shape, bias, dtype=dtype),
            ours=ours,
            peers={"eager": eager},
            bytes_moved=nbytes(dtype, shape, shape, bias),
            way=way,
        )

    return Operator(name, make, shapes)


FAMILY = Family(
    "bias_act",
    (
        _operator(
            "bias_gelu",
            "",
            fusedops.bias_gelu,
            lambda x, b: functional.gelu(x + b, approximate="tanh"),
            (*ROWS, (4096, 5120)),
        ),
        _operator(
            "bias_gelu",
            "erf",
            lambda x, b: fusedops.bias_gelu(x, b, approximate="none"),
            lambda x, b: functional.gelu(x + b),
        ),
        _operator("bias_add", "", fusedops.bias_add, lambda x, b: x + b),
        _operator("bias_relu", "", fusedops.bias_relu, lambda x, b: torch.relu(x + b)),
    ),
)
