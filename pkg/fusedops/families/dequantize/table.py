"""The family's operator."""

import torch
from torch import Tensor

from fusedops.batching import by_rows
from fusedops.families.dequantize import checks, reference
from fusedops.op import Op


def _result(weight: Tensor, scale: Tensor, *, dtype: torch.dtype) -> Tensor:
    del scale
    rows, cols = weight.shape
    return weight.new_empty((rows, cols if weight.dtype == torch.int8 else 2 * cols), dtype=dtype)


OPS = (
    Op(
        "dequantize",
        "dequantize",
        "(Tensor weight, Tensor scale, *, ScalarType dtype) -> Tensor",
        checks.dequantize,
        reference.dequantize,
        _result,
        batching=by_rows(),
        public=False,  # its entry points are by the type of the result, in functions.py
    ),
)
