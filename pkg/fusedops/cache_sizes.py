"""How the decode kernel wants its cache and its counters (csrc/kernels/attention.h)."""

import torch

MOST_HEAD_DIM = 256
VECTOR = 16  # bytes that a kernel reads at once: a head of the cache is padded to whole ones
HEADS_TOGETHER = 8  # query heads of a block


def row_of(head_dim: int, dtype: torch.dtype) -> int:
    """Elements of a head in the cache: up to whole vectors."""
    return up(head_dim * dtype.itemsize, VECTOR) // dtype.itemsize


def counters_of(batch: int, heads: int, kv_heads: int) -> int:
    """Counters of a step: one for what shares a block's heads, one for each sequence."""
    chunks = -(-(heads // kv_heads) // HEADS_TOGETHER)
    return batch * (kv_heads * chunks + 1)


def up(size: int, step: int) -> int:
    """`size`, or the next multiple of `step`."""
    return -(-size // step) * step
