"""Heads padded with zeros."""

import torch
from torch import Tensor

import fusedops
from cases.case import Case, matrices


def padded(x: Tensor) -> Tensor:
    """Zeros up to 32, 64 or 128."""
    width = x.shape[-1]
    wide = 32 if width <= 32 else 64 if width <= 64 else 128
    return torch.cat([x, x.new_zeros(*x.shape[:-1], wide - width)], -1)


HEADS = 3

CASES = (
    Case(
        "add_padding",
        fusedops.add_padding,
        padded,
        matrices(1),
        small=((7,), (5, 3, 40), (2, 3, 2, 128), (2, 64)),
        empty=((0,), (3, 0), (0, 5)),
        large=(
            (1,),
            (128,),
            (1023, 8),
            (4099, 3),
            (33, 33),
            (300, 5, 72),
            (17, 3, 5, 80),
            (70_001, 100),
        ),
        backward=((4099, 3), (3, 5, 72)),
        strided=(37, 88),
        lasts=range(1, 129),
        rowwise=False,
    ),
    Case(
        "pad_transform",
        fusedops.pad_transform,
        lambda x: padded(x.unflatten(2, (HEADS, -1))).transpose(1, 2),
        matrices(1),
        {"heads": HEADS},
        small=((2, 5, 3 * 40), (1, 3, 3 * 7), (3, 1, 3 * 128)),
        empty=((0, 5, 120), (2, 0, 120)),
        large=((1, 1, 3), (2, 33, 3 * 80), (5, 700, 3 * 64), (3, 129, 3 * 31), (1, 7001, 3 * 100)),
        backward=((2, 33, 3 * 80), (3, 129, 3 * 31)),
        strided=(3, 37, 3 * 72),
        tiny=(2, 3, 3 * 5),
        ranks=(3,),
        lasts=range(HEADS, 129 * HEADS, HEADS),
        rowwise=False,
    ),
)
