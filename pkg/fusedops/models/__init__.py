"""Decoder-only language models on the fused operators."""

from fusedops.models.convert import convert
from fusedops.models.decoder import Decoder

__all__ = ["Decoder", "convert"]
