"""The sizes of a decoder-only model."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    """What a workspace and a block need to know.

    Attributes:
        heads: query heads.
        kv_heads: key and value heads; a divisor of `heads`.
        head_dim: elements of a head.
        layers: blocks.
        max_tokens: positions that the model was made for.
        eps: what the norms add to the variance.
    """

    heads: int
    kv_heads: int
    head_dim: int
    layers: int
    max_tokens: int
    eps: float
