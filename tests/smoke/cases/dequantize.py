"""Integers times the scale of their group of rows."""

import torch
from torch import Tensor


def weights(
    rows: int, cols: int, groups: int, *, packed: bool, device: torch.device
) -> tuple[Tensor, Tensor]:
    """All values of the type, and scales."""
    scale = torch.randn(groups, device=device)
    if packed:
        return torch.randint(0, 256, (rows, cols // 2), device=device).to(torch.uint8), scale
    return torch.randint(-128, 128, (rows, cols), device=device).to(torch.int8), scale


PRIVATE = {
    "dequantize": lambda device: (
        weights(12, 40, 3, packed=True, device=device),
        {"dtype": torch.bfloat16},
    ),
}
