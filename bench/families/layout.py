"""Heads padded to 128 elements; a shape is sequences x tokens x heads x head dim."""

import torch
from kernelbench.case import Case, Family, Operator, Shape, nbytes, normal
from torch import Tensor
from torch.nn import functional

import fusedops

PADDED = 128
SHAPES: tuple[Shape, ...] = ((4, 4096, 40, 80), (1, 1024, 32, 96), (32, 1, 32, 96))
QUICK: tuple[Shape, ...] = (SHAPES[0], SHAPES[2])
TINY: Shape = (2, 3, 4, 72)


def _padded(x: Tensor) -> Tensor:
    return functional.pad(x, (0, PADDED - x.shape[-1]))


def _add_padding(shape: Shape, dtype: torch.dtype) -> Case:
    return Case(
        "add_padding",
        shape,
        dtype,
        inputs=normal(shape, dtype=dtype),
        ours=fusedops.add_padding,
        peers={"eager": _padded},
        bytes_moved=nbytes(dtype, shape, (*shape[:-1], PADDED)),
    )


def _pad_transform(shape: Shape, dtype: torch.dtype) -> Case:
    sequences, tokens, heads, head_dim = shape

    def eager(x: Tensor) -> Tensor:
        return _padded(x.view(shape)).transpose(1, 2).contiguous()

    return Case(
        "pad_transform",
        shape,
        dtype,
        inputs=normal((sequences, tokens, heads * head_dim), dtype=dtype),
        ours=lambda x: fusedops.pad_transform(x, heads=heads),
        peers={"eager": eager},
        bytes_moved=nbytes(dtype, shape, (*shape[:-1], PADDED)),
    )


FAMILY = Family(
    "layout",
    (
        Operator("add_padding", _add_padding, SHAPES, QUICK, TINY),
        Operator("pad_transform", _pad_transform, SHAPES, QUICK, TINY),
    ),
)
