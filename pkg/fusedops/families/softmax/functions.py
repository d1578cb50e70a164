"""softmax as called."""

from typing import cast

from torch import Tensor

from fusedops.call import call, ops


def softmax(
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
    """Compute the softmax over the keys of scale * scores + alibi + mask.

    For query i of head h of sequence b, z_j = scale * scores[b, h, i, j] + alibi + mask and
    y_j = exp(z_j - max z) / sum_k exp(z_k - max z): the weights of attention (Vaswani et al.,
    "Attention Is All You Need", 2017), by one read of the scores and one write. A key that is
    dropped has z = -inf and gets 0; a row that keeps no key gets zeros. NaN, or +inf, in what a row
    keeps gives NaN. Arithmetic is float32 (float64 for float64), rounded once.

    The position of query i among the keys is i + L - Sq: the last query stands at the last key, as
    in a step of decoding.

    **The mask's rank tells what it is**: two dimensions are an encoder's padding mask [B, L], one
    row for every query (in scaled_dot_product_attention they would be [Sq, L]); three are
    [B, Sq, L]; four are [B, H, Sq, L]. Any size may be 1 and is broadcast, and so are expanded
    tensors, without a copy.

    Differentiable once in `scores`. The mask and alibi get no gradient; one that requires it is
    refused where gradients are recorded.

    Args:
        scores: Shape [B, H, Sq, L]; float32, float16, bfloat16 or float64.
        mask: None, or what is added to the scaled scores, in float32 or the dtype of `scores`, or
            booleans: True keeps a key, as in scaled_dot_product_attention. Shape [B, L],
            [B, Sq, L] or [B, H, Sq, L], any of them 1; device of `scores`.
        alibi: None, or linear biases (Press et al., "Train Short, Test Long", 2022): the slopes of
            the heads, [mp_size * H], which add slope * (j - (L - 1)), or what to add itself,
            [mp_size * H, L]. float32 or the dtype of `scores`, device of `scores`.
        causal: Drop the keys after the query's own position, j > i + L - Sq.
        window: How many keys a query sees back from its own position, which counts:
            j <= i + L - Sq - window is dropped. 0: all. It says nothing of the keys after that
            position: without `causal` they stay.
        scale: Factor of the scores, rounded to the arithmetic's type.
        head_offset: Which of the heads of `alibi` is the first of `scores`: with H heads on each
            of `mp_size` ranks, rank * H.
        mp_size: How many ranks share the heads of `alibi`.

    Returns:
        A new contiguous tensor of the shape and dtype of `scores`.

    Raises:
        ValueError: A dtype, device, shape or number is not as above (RuntimeError from a native
            kernel).
        RuntimeError: A gradient of `mask` or `alibi` is asked for.
    """
    return cast(
        "Tensor",
        call(
            ops.softmax,
            scores,
            mask,
            alibi,
            causal=causal,
            window=window,
            scale=scale,
            head_offset=head_offset,
            mp_size=mp_size,
        ),
    )
