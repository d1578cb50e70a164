"""Layer norm and RMS norm, with what is added before them."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import fusedops
from cases.case import BACKWARD, LARGE, Case, Make, Shape, randn

# The layouts of the kernels end near these: rows that share a warp, a block, a cluster of blocks,
# and none at once.
_WIDE: tuple[Shape, ...] = (
    (1001, 64),
    (517, 129),
    (300, 520),
    (9, 4104),
    (7, 8192),
    (5, 8200),
    (3, 16_385),
    (3, 16_392),
    (3, 32_768),
    (2, 32_769),
    (2, 65_536),
    (3, 100_000),
    (2, 131_072),
    (3, 131_071),
)


def layer_norm(s: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
    """(s - mean) / deviation, scaled and shifted."""
    apart = s - s.sum(-1, keepdim=True) / s.shape[-1]
    variance = (apart**2).sum(-1, keepdim=True) / s.shape[-1]
    return apart / (variance + 1e-5).sqrt() * gamma + beta


def rms_norm(s: Tensor, gamma: Tensor) -> Tensor:
    """S over the root of its mean square, scaled."""
    return s / ((s**2).sum(-1, keepdim=True) / s.shape[-1] + 1e-6).sqrt() * gamma


_MATRIX, _ROW = slice(None), slice(-1, None)  # of a result's shape


def _inputs(*after: slice) -> Make:
    """x, and what comes after it.

    Neighbours in x differ by more than chance can undo, with what is added to x too: no row's
    deviation is near 0. A small one magnifies the roundings of float32, and its row's gradient,
    which is as large as it is small, is then most of the whole gradient and its error.
    """

    def make(shape: Shape, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, ...]:
        columns = torch.arange(shape[-1], device=device)
        x = randn(shape, torch.float64, device, 0.6) + 8.0 * (columns % 2) - 3.0
        return x.to(dtype), *(randn(shape[part], dtype, device, 0.6) for part in after)

    return make


def _case(function: Callable[..., Any], exact: Callable[..., Any], *after: slice) -> Case:
    return Case(
        function.__name__,
        function,
        exact,
        _inputs(*after),
        large=(*LARGE, *_WIDE),
        backward=((2, 70_001), (3, 20_000), *BACKWARD),
        most=1e4,
        relative=2e-6,
        absolute=1e-5,  # gamma (x - mean) / deviation and beta may cancel
    )


_RESIDUAL = (_ROW, _MATRIX, _ROW, _ROW)

CASES = (
    _case(fusedops.layer_norm, layer_norm, _ROW, _ROW),
    _case(
        fusedops.layer_norm_residual,
        lambda x, bias, residual, gamma, beta: layer_norm(x + bias + residual, gamma, beta),
        *_RESIDUAL,
    ),
    _case(
        fusedops.layer_norm_residual_store,
        lambda x, bias, residual, gamma, beta: (
            layer_norm(x + bias + residual, gamma, beta),
            x + bias + residual,
        ),
        *_RESIDUAL,
    ),
    _case(fusedops.rms_norm, rms_norm, _ROW),
    _case(
        fusedops.pre_rms_norm,
        lambda x, residual, gamma: (rms_norm(x + residual, gamma), x + residual),
        _MATRIX,
        _ROW,
    ),
)


def _backward(device: torch.device) -> tuple[tuple[Tensor, ...], dict[str, Any]]:
    x, gamma = _inputs(_ROW)((6, 40), torch.float32, device)
    grad, grad_sum = torch.randn(2, 6, 40, device=device).unbind()
    return (grad, x, gamma, grad_sum), {"eps": 1e-3}


PRIVATE = {"layer_norm_backward": _backward, "rms_norm_backward": _backward}
