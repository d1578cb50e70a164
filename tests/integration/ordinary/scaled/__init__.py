"""y = x * by."""

import torch  # noqa: F401 - loads what _C is linked with

from scaled._C import scale

__all__ = ["scale"]
