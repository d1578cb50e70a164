"""Queries and keys rotated by their positions."""

import torch
from torch import Tensor

import fusedops
from cases.case import Case, Make, Shape, randn


def rotate(
    heads: Tensor, at: Tensor, rotary_dim: int, *, interleaved: bool = False, theta: float = 1e4
) -> Tensor:
    """Heads [B, S, H, D] as complex numbers a + bi times e^(angle i), at positions [B or 1, S]."""
    pairs = torch.arange(rotary_dim // 2, dtype=torch.float64, device=heads.device)
    angles = at.double()[..., None, None] * theta ** (-2 * pairs / rotary_dim)
    turning, rest = heads[..., :rotary_dim], heads[..., rotary_dim:]
    split = (-1, 2) if interleaved else (2, -1)
    along = -1 if interleaved else -2
    a, b = turning.unflatten(-1, split).unbind(along)
    product = torch.complex(a, b) * torch.polar(torch.ones_like(angles), angles)
    both = torch.stack([product.real, product.imag], along).flatten(-2)
    return torch.cat([both, rest], -1)


def _heads(shape: Shape, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    batch, tokens, heads, width = shape
    k_shape = (batch, tokens, -(-heads // 3), width)
    return randn(shape, dtype, device), randn(k_shape, dtype, device)


def _heads_and_positions(
    shape: Shape, dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, ...]:
    return (*_heads(shape, dtype, device), torch.randint(0, 50, shape[:2], device=device))


def _case(
    name: str, widths: tuple[int, ...], rotary_dim: int, inputs: Make = _heads, **keywords: object
) -> Case:
    """Shapes [B, S, H, width]: the last width is for the tests that try one shape."""

    def exact(q: Tensor, k: Tensor, positions: Tensor | None = None) -> tuple[Tensor, Tensor]:
        at = torch.arange(q.shape[1], device=q.device)[None] if positions is None else positions
        at = at + keywords.get("offset", 0)
        interleaved = keywords.get("style") == "interleaved"
        return tuple(rotate(one, at, rotary_dim, interleaved=interleaved) for one in (q, k))

    last = widths[-1]
    return Case(
        f"apply_rotary_pos_emb {name}",
        fusedops.apply_rotary_pos_emb,
        exact,
        inputs,
        {"rotary_dim": rotary_dim, **keywords},
        small=[(2, 3, 5, width) for width in widths],
        empty=[(0, 3, 5, last), (2, 0, 5, last), (2, 3, 0, last)],
        large=[
            shape
            for width in widths
            for shape in (
                (1, 1, 1, width),
                (64, 1, 32, width),
                (3, 17, 71, width),
                (2, 9, 200, width),
                (1, 40, 7, width),
            )
        ],
        backward=[(2, 7, 9, width) for width in widths],
        strided=(3, 5, 6, last),
        tiny=(1, 2, 2, last),
        ranks=(4,),
        lasts=widths,
        rowwise=False,
        absolute=2e-6,
        # Of angles of up to 2^15, of which the truth has no more digits than we.
        float64_absolute=1e-10,
    )


CASES = (
    _case("half", (67, 80, 128, 64), 64, offset=3),
    _case("interleaved", (65, 72, 128, 64), 64, offset=2, style="interleaved"),
    _case("narrow", (7, 10, 6), 6),
    _case("narrow interleaved", (7, 10, 6), 6, offset=-4, style="interleaved"),
    _case("quarter", (96, 80), 20, offset=7),
    _case("quarter interleaved", (80, 96), 24, style="interleaved"),
    _case("wide", (320, 300), 300, offset=1),
    _case("positions", (40, 32), 32, _heads_and_positions, offset=5),
)


def _private(device: torch.device) -> tuple[Tensor, ...]:
    return _heads((2, 3, 6, 40), torch.float32, device)


PRIVATE = {
    "apply_rotary_pos_emb_": lambda device: (_private(device), {"rotary_dim": 32, "offset": 3}),
    "apply_rotary_pos_emb_backward": lambda device: (
        (*_private(device), torch.arange(3, device=device)[None]),
        {"rotary_dim": 24, "style": "interleaved"},
    ),
}
