"""Attention over a cache of keys and values."""

from fusedops.families.attention.softmax_context import (
    softmax_context,
    softmax_context_bf16,
    softmax_context_fp16,
    softmax_context_fp32,
)
from fusedops.families.attention.step import OPS as OPS

__all__ = [
    "softmax_context",
    "softmax_context_bf16",
    "softmax_context_fp16",
    "softmax_context_fp32",
]
