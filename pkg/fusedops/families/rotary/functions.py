"""The rotary embedding as called."""

from typing import cast

from torch import Tensor

from fusedops.call import call, call_in_place, ops


def apply_rotary_pos_emb(
    q: Tensor,
    k: Tensor,
    positions: Tensor | None = None,
    *,
    rotary_dim: int,
    offset: int = 0,
    style: str = "half",
    theta: float = 10000.0,
) -> tuple[Tensor, Tensor]:
    """Turn pairs of elements of queries and keys by angles that grow with their positions.

    At position p, pair i of a head turns by p * theta^(-2i / rotary_dim) rad: (a, b) becomes
    (a cos - b sin, b cos + a sin), as in Su et al., "RoFormer: Enhanced Transformer with Rotary
    Position Embedding", 2021. Style "half" pairs elements i and i + rotary_dim / 2 (GPT-NeoX,
    Llama), "interleaved" pairs 2i and 2i + 1 (GPT-J, the paper). Elements from rotary_dim on stay
    as they are. Angles are exact to the result's type at any position; arithmetic is float32
    (float64 for float64), rounded once.

    Differentiable in `q` and `k`, any number of times.

    Args:
        q: Shape [B, S, H, D]; float32, float16, bfloat16 or float64. Read where it lies if the
            elements of a head are neighbours, e.g. a slice of a packed qkv tensor; else copied.
        k: Shape [B, S, Hkv, D]; dtype and device of `q`. It may have fewer heads.
        positions: Where the tokens are, on the device of `q`, int32 or int64: of every token
            [B, S], or the same for every sequence [1, S], or of every sequence's first token [B].
            Without it token s is at s. It is read by the kernel: no host synchronisation.
        rotary_dim: How many elements of a head turn: even, from 2 to D.
        offset: Added to every position.
        style: "half" or "interleaved".
        theta: Base of the frequencies.

    Returns:
        New contiguous tensors of the shapes and dtype of `q` and `k`.

    Raises:
        ValueError: An argument is not as above (RuntimeError from a native kernel).
    """
    op = ops.apply_rotary_pos_emb
    found = call(
        op, q, k, positions, rotary_dim=rotary_dim, offset=offset, style=style, theta=theta
    )
    return cast("tuple[Tensor, Tensor]", found)


def apply_rotary_pos_emb_(
    q: Tensor,
    k: Tensor,
    positions: Tensor | None = None,
    *,
    rotary_dim: int,
    offset: int = 0,
    style: str = "half",
    theta: float = 10000.0,
) -> tuple[Tensor, Tensor]:
    """Do as apply_rotary_pos_emb does, into `q` and `k`. Nothing is copied.

    For inference: it has no gradient, and refuses where one is asked for.

    Args:
        q: As there, but the elements of a head must be neighbours and no two elements may share
            memory. Other strides are free: `q` and `k` may be slices of one packed qkv tensor.
        k: As `q`. It may not overlap `q`.
        positions: As there.
        rotary_dim: As there.
        offset: As there.
        style: As there.
        theta: As there.

    Returns:
        `q` and `k`.

    Raises:
        ValueError: An argument is not as above (RuntimeError from a native kernel).
        RuntimeError: A gradient is asked for.
    """
    call_in_place(
        *(ops.apply_rotary_pos_emb_, q, k, positions),
        rotary_dim=rotary_dim,
        offset=offset,
        style=style,
        theta=theta,
    )
    return q, k
