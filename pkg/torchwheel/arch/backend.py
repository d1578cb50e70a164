"""Whose GPUs: the two platforms, and their names in messages."""

from collections.abc import Mapping
from typing import Literal

Backend = Literal["cuda", "rocm"]

BRANDS: Mapping[Backend, str] = {"cuda": "CUDA", "rocm": "ROCm"}
"""Names of the backends in messages."""
