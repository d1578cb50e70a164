"""How the decode kernel wants the cache and its counters (csrc/kernels/attention.h)."""

import torch

MAX_HEAD_DIM = 256
VECTOR = 16
"""Bytes that the kernel reads at once; a head of the cache is padded to a multiple."""
HEADS_PER_BLOCK = 8
"""Query heads that a block computes together."""


def cache_row(head_dim: int, dtype: torch.dtype) -> int:
    """Elements of a head in the cache, padded to whole vectors."""
    return round_up(head_dim * dtype.itemsize, VECTOR) // dtype.itemsize


def counters_of_step(batch: int, heads: int, kv_heads: int) -> int:
    """Counters of a step: one for each group of heads that a block computes, one a sequence."""
    chunks = -(-(heads // kv_heads) // HEADS_PER_BLOCK)
    return batch * (kv_heads * chunks + 1)


def round_up(size: int, step: int) -> int:
    """`size`, or the next multiple of `step`."""
    return -(-size // step) * step
