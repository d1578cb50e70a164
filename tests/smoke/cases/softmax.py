"""Masked softmax of attention scores."""

import math

import torch
from torch import Tensor

import fusedops
from cases.case import Case, randn

SMALL = ((2, 3, 4, 5), (1, 2, 3, 129))
EMPTY = ((0, 2, 3, 4), (2, 0, 3, 4), (2, 3, 0, 5), (2, 3, 4, 0))
# Rows that are a part of a warp, a warp, a block, and more than a block holds; of whole vectors and
# not; many rows, many heads, many sequences.
LARGE = (
    (1, 1, 1, 1),
    (1, 1, 1, 4096),
    (2, 3, 5, 7),
    (4, 2, 7, 64),
    (3, 1, 65, 1031),
    (2, 4, 33, 1024),
    (1, 8, 128, 2048),
    (2, 2, 64, 4097),
    (1, 2, 17, 16_384),
    (1, 3, 5, 32_768),
    (1, 2, 3, 40_001),
    (1, 1, 2, 131_075),
    (70_001, 1, 1, 8),
    (1, 70_001, 2, 3),
    (1, 2, 515, 512),
)
BACKWARD = (
    (2, 1, 3, 1),
    (2, 3, 5, 7),
    (4, 2, 7, 64),
    (1, 2, 64, 4097),
    (1, 1, 9, 16_384),
    (1, 2, 3, 40_001),
    (3, 5, 65, 1031),
)


def exact(
    scores: Tensor,
    mask: Tensor | None = None,
    alibi: Tensor | None = None,
    *,
    causal: bool = False,
    window: int = 0,
    scale: float = 1.0,
    head_offset: int = 0,
    mp_size: int = 1,
) -> Tensor:
    """Of float64 tensors: weights, which are divided by their sum where that is not 0."""
    _, heads, queries, keys = scores.shape
    j = torch.arange(keys, device=scores.device)
    last = torch.arange(keys - queries, keys, device=scores.device)[:, None]
    dropped = torch.zeros(queries, keys, dtype=torch.bool, device=scores.device)
    if causal:
        dropped |= j > last
    if window:
        dropped |= last - j >= window
    z = scale * scores
    if alibi is not None:
        own = alibi[head_offset:][:heads]
        z = z + (own[:, None, None] * (j - (keys - 1)) if own.dim() == 1 else own.unsqueeze(1))
    if mask is not None:
        where = {2: (slice(None), None, None), 3: (slice(None), None), 4: ()}[mask.dim()]
        mask = mask[where]
        z = torch.where(mask, z, -math.inf) if mask.dtype == torch.bool else z + mask
    z = torch.where(dropped, -math.inf, z)
    if keys == 0:
        return z
    top = z.max(-1, keepdim=True).values
    weights = torch.exp(z - torch.where(top == -math.inf, 0, top))
    total = weights.sum(-1, keepdim=True)
    return torch.where(total == 0, 0, weights / total)


def _sizes(shape, rank):
    batch, heads, queries, keys = shape
    return {
        "padding": (batch, keys),
        "shared": (batch, 1, queries, keys),
        "queries": (batch, queries, keys),
        "heads": (batch, heads, queries, keys),
        "rows": (1, 1, queries, 1),
        "columns": (batch, 1, 1, keys),
    }[rank]


def _scores(shape, dtype, device):
    return randn(shape, dtype, device, 2.5)


def _booleans(rank):
    def make(shape, dtype, device):
        keep = torch.rand(_sizes(shape, rank), device=device) < 0.7
        keep[..., :1, :] &= torch.rand((), device=device) < 0.5  # sometimes nothing is left
        return (_scores(shape, dtype, device), keep)

    return make


def _numbers(rank, of=None):
    def make(shape, dtype, device):
        scores, keep = _booleans(rank)(shape, dtype, device)
        added = randn(tuple(keep.shape), of or dtype, device)
        return (scores, added.masked_fill(~keep, -math.inf))

    return make


def _alibi(values, mp_size):
    def make(shape, dtype, device):
        heads, keys = mp_size * shape[1], shape[3]
        if values:
            alibi = randn((heads, keys), dtype, device)
        else:
            alibi = (2.0 ** -torch.linspace(1, 8, heads, device=device)).to(dtype)
        keep = torch.rand(_sizes(shape, "padding"), device=device) < 0.9
        return (_scores(shape, dtype, device), keep, alibi)

    return make


def _case(name, inputs, keywords, *, differentiable=True, empty=EMPTY):
    return Case(
        f"softmax {name}".strip(),
        fusedops.softmax,
        lambda *args: exact(*args, **keywords),
        inputs,
        keywords,
        small=SMALL,
        empty=empty,
        large=LARGE,
        backward=BACKWARD,
        strided=(2, 3, 7, 136),
        tiny=(2, 2, 3, 5),
        ranks=(4,),
        differentiable=differentiable,
        rowwise=False,
        relative=1e-5,
    )


def _plain(shape, dtype, device):
    return (_scores(shape, dtype, device),)


CASES = (
    _case("", _plain, {"scale": 0.3}),
    _case("causal", _plain, {"causal": True}),
    _case("window", _plain, {"causal": True, "window": 100, "scale": 0.125}),
    _case("looking back", _plain, {"window": 3, "scale": -0.5}),
    _case("padding", _booleans("padding"), {"scale": 0.5}),
    _case("rows", _booleans("rows"), {}),
    _case("heads", _booleans("heads"), {"causal": True}),
    _case("mask", _numbers("shared"), {"scale": 0.125}, differentiable=False),
    _case("columns", _numbers("columns"), {}, differentiable=False),
    _case("float32 mask", _numbers("queries", torch.float32), {}, differentiable=False),
    _case(
        "alibi",
        _alibi(False, 2),
        {"causal": True, "head_offset": 1, "mp_size": 2},
        differentiable=False,
        empty=((0, 2, 3, 4), (2, 3, 0, 5), (2, 3, 4, 0)),
    ),
    _case("biases", _alibi(True, 1), {"scale": 0.7}, differentiable=False),
)


def _backward(device):
    y = torch.softmax(torch.randn(2, 3, 5, 40, device=device), -1)
    return (torch.randn_like(y), y), {"scale": 0.3}


PRIVATE = {"softmax_backward": _backward}
