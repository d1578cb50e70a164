"""Rotary position embedding of q and k; a shape is sequences x tokens x heads of q x head dim."""

from functools import partial

import torch
from kernelbench.case import Case, Family, Operator, Shape, nbytes, normal
from kernelbench.peers import library
from torch import Tensor

import fusedops

THETA = 10000.0
GROUP = 4  # heads of q that share one of k
# 64 MiB of q in 16 bits and more, with head dims of 128, 64 and 80; then a middle one and steps.
SHAPES: tuple[Shape, ...] = (
    (8, 4096, 32, 128),
    (2, 4096, 32, 128),
    (2, 4096, 64, 64),
    (2, 4096, 40, 80),
    (1, 1024, 32, 128),
    (32, 1, 32, 128),
    (1, 1, 32, 128),
)
QUICK: tuple[Shape, ...] = (SHAPES[1], SHAPES[5])

LIGER = library("liger_kernel.ops.rope", "LigerRopeFunction", "apply")
FLASHINFER = library("flashinfer", "apply_rope_pos_ids")
FLASHINFER_IN_PLACE = library("flashinfer", "apply_rope_pos_ids_inplace")

Pair = tuple[Tensor, Tensor]


def _half(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """With tables of [tokens, 1, half of what turns]."""
    turning = 2 * cos.shape[-1]
    a, b = x[..., :turning].chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin, x[..., turning:]), -1)


def _interleaved(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    turning = 2 * cos.shape[-1]
    a, b = x[..., 0:turning:2], x[..., 1:turning:2]
    turned = torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2)
    return torch.cat((turned, x[..., turning:]), -1)


def _operator(way: str, *, style: str = "half", part: int = 1, in_place: bool = False) -> Operator:
    """`part`: which part of a head turns, 1 for all of it."""
    name = "apply_rotary_pos_emb_" if in_place else "apply_rotary_pos_emb"
    turned = _half if style == "half" else _interleaved

    def written(q: Tensor, k: Tensor) -> Pair:
        """In place, the rest of a head stays as it is."""
        if not in_place or part == 1:
            return q, k
        return q[..., : q.shape[-1] // part], k[..., : k.shape[-1] // part]

    def eager(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, _: Tensor) -> Pair:
        q, k = written(q, k)
        return turned(q, cos, sin), turned(k, cos, sin)

    def liger(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, _: Tensor) -> object:
        """It works in place, on what turns alone: beside results of their own, after a copy."""
        if not in_place:
            q, k = q.clone(), k.clone()
        tables = cos.squeeze(1), sin.squeeze(1)
        return LIGER(q.transpose(1, 2), k.transpose(1, 2), *tables, None, 1, 2 * cos.shape[-1])

    def flashinfer(q: Tensor, k: Tensor, cos: Tensor, _: Tensor, positions: Tensor) -> object:
        call = FLASHINFER_IN_PLACE if in_place else FLASHINFER
        rest = (positions, 2 * cos.shape[-1], style == "interleaved", 1.0, THETA)
        return call(q.flatten(0, 1), k.flatten(0, 1), *rest)

    def make(shape: Shape, dtype: torch.dtype) -> Case:
        sequences, tokens, heads, head_dim = shape
        of_k = (sequences, tokens, -(-heads // GROUP), head_dim)
        turning = head_dim // part
        ours = partial(getattr(fusedops, name), rotary_dim=turning, style=style, theta=THETA)

        def inputs(device: torch.device) -> tuple[Tensor, ...]:
            """Beside q and k what the others need: tables of the angles, positions."""
            steps = torch.arange(0, turning, 2, device=device) / turning
            angles = torch.arange(tokens, device=device)[:, None, None] * THETA**-steps
            positions = torch.arange(tokens, device=device, dtype=torch.int32).repeat(sequences)
            tables = angles.cos().to(dtype), angles.sin().to(dtype)
            return *normal(shape, of_k, dtype=dtype)(device), *tables, positions

        moved = 2 * nbytes(dtype, shape, of_k)
        return Case(
            name,
            shape,
            dtype,
            inputs=inputs,
            ours=lambda q, k, *_: written(*ours(q, k)),
            peers={"eager": eager}
            | ({"liger": liger} if style == "half" else {})
            | {"flashinfer": flashinfer},
            bytes_moved=moved // part if in_place else moved,
            way=way,
        )

    return Operator(name, make, SHAPES, QUICK, tiny=(2, 3, 8, 16))


FAMILY = Family(
    "rotary",
    (
        _operator("half"),
        _operator("interleaved", style="interleaved"),
        _operator("half, part", part=2),
        _operator("half", in_place=True),
        _operator("half, part", part=2, in_place=True),
    ),
)
