"""Decoder-only language models on the fused operators: what they are for, and how to use them."""

from fusedops.models.convert import convert
from fusedops.models.decoder import Decoder

__all__ = ["Decoder", "convert"]
