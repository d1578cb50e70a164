"""Masked softmax of attention scores."""

from collections.abc import Callable, Mapping, Sequence

import torch
from kernelbench.case import Call, Case, Family, Operator, Shape, nbytes, normal
from kernelbench.peers import library
from torch import Tensor

import fusedops
from families import gradients

SCALE = 0.125
LIGER = library("liger_kernel.ops.softmax", "LigerSoftmaxFunction", "apply")
FLASHINFER = library("flashinfer", "sampling", "softmax")
QUACK = library("quack.softmax", "softmax_fwd")
# [B, H, Sq, L]: 64 MiB and more in 16 bits with L of 1 k to 32 k, and an odd L; then a step's.
LARGE: tuple[Shape, ...] = (
    (8, 32, 256, 1024),
    (4, 8, 256, 4096),
    (4, 8, 256, 4097),
    (1, 16, 1024, 16384),
    (1, 16, 256, 32768),
)
DECODE: tuple[Shape, ...] = ((1, 32, 1, 4096), (16, 32, 1, 4096), (1, 32, 1, 131072))
# Rows that several blocks share: 512 MiB in 16 bits, and an odd L.
LONG: tuple[Shape, ...] = (
    (1, 1, 4096, 65536),
    (1, 1, 2048, 131072),
    (1, 1, 2048, 131073),
    (1, 1, 1024, 262144),
    (1, 1, 256, 1048576),
)
QUICK: tuple[Shape, ...] = ((4, 8, 256, 4096), (1, 32, 1, 4096))


def _operator(
    way: str,
    ours: Call,
    peers: Mapping[str, Call],
    *,
    masks: Callable[[Shape], tuple[Shape, ...]] = lambda _: (),
    shapes: Sequence[Shape] = LARGE + DECODE,
    dropped: Callable[[Shape], Shape] = lambda _: (0,),
    spread: Call = lambda tensor: tensor,
) -> Operator:
    """One way of calling it.

    `dropped` scores are written as zeros and need not be read; `spread` is done to what is drawn.
    """

    def make(shape: Shape, dtype: torch.dtype) -> Case:
        drawn = normal(shape, *masks(shape), dtype=dtype)
        moved = nbytes(dtype, shape, shape, *masks(shape)) - nbytes(dtype, dropped(shape))
        return Case(
            "softmax",
            shape,
            dtype,
            inputs=lambda device: tuple(map(spread, drawn(device))),
            ours=ours,
            peers=peers,
            bytes_moved=moved,
            way=way,
        )

    quick = [shape for shape in QUICK if shape in shapes]
    return Operator("softmax", make, shapes, quick, tiny=(1, 2, 3, 16))


def _masked(scores: Tensor, mask: Tensor) -> Tensor:
    return torch.softmax(SCALE * scores + mask, -1)


def _alibi(scores: Tensor, slopes: Tensor) -> Tensor:
    keys = scores.shape[-1]
    back = torch.arange(1 - keys, 1, device=scores.device)
    return torch.softmax(SCALE * scores + (slopes[:, None, None] * back).to(scores.dtype), -1)


def _causal(scores: Tensor) -> Tensor:
    queries, keys = scores.shape[-2:]
    last = torch.arange(keys - queries, keys, device=scores.device)[:, None]
    later = torch.arange(keys, device=scores.device) > last
    return torch.softmax((SCALE * scores).masked_fill(later, float("-inf")), -1)


FAMILY = Family(
    "softmax",
    (
        _operator(
            "",
            fusedops.softmax,
            {
                "eager": lambda scores: torch.softmax(scores, -1),
                "liger": LIGER,
                "flashinfer": lambda scores: FLASHINFER(scores.view(-1, scores.shape[-1])),
                "quack": lambda scores: QUACK(scores.view(-1, scores.shape[-1])),
            },
            shapes=(*LARGE, *DECODE, (1, 1, 1024, 131072), *LONG),
        ),
        _operator(
            "mask",
            lambda scores, mask: fusedops.softmax(scores, mask, scale=SCALE),
            {"eager": _masked},
            masks=lambda shape: ((shape[0], 1, *shape[2:]),),
            shapes=(*LARGE, *DECODE, LONG[1]),
        ),
        _operator(
            "padding",
            lambda scores, mask: fusedops.softmax(scores, mask, scale=SCALE),
            {"eager": lambda scores, mask: _masked(scores, mask[:, None, None, :])},
            masks=lambda shape: ((shape[0], shape[3]),),
        ),
        _operator(
            "alibi",
            lambda scores, slopes: fusedops.softmax(scores, None, slopes, scale=SCALE),
            {"eager": _alibi},
            masks=lambda shape: (shape[1:2],),
            spread=torch.abs,  # as slopes are; far keys would outweigh all others
            shapes=QUICK,
        ),
        _operator(
            "causal",
            lambda scores: fusedops.softmax(scores, causal=True, scale=SCALE),
            {"eager": _causal},
            shapes=LARGE,
            dropped=lambda shape: (*shape[:2], shape[2] * (shape[2] - 1) // 2),
        ),
        gradients.SOFTMAX,
    ),
)
