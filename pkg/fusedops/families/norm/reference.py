"""The norms in plain PyTorch."""

import torch
from torch import Tensor

from fusedops.widths import narrow, sum_over_rows, widen


def layer_norm(x: Tensor, gamma: Tensor, beta: Tensor, *, eps: float = 1e-5) -> Tensor:
    """LN(x)."""
    return _layer_norm(widen(x), gamma, beta, eps)


def layer_norm_residual(
    x: Tensor, bias: Tensor, residual: Tensor, gamma: Tensor, beta: Tensor, *, eps: float = 1e-5
) -> Tensor:
    """LN(x + bias + residual)."""
    return _layer_norm(widen(x) + widen(bias) + widen(residual), gamma, beta, eps)


def layer_norm_residual_store(
    x: Tensor, bias: Tensor, residual: Tensor, gamma: Tensor, beta: Tensor, *, eps: float = 1e-5
) -> tuple[Tensor, Tensor]:
    """LN(s) and s = x + bias + residual; the norm is of s before it is rounded."""
    s = widen(x) + widen(bias) + widen(residual)
    return _layer_norm(s, gamma, beta, eps), narrow(s, x)


def rms_norm(x: Tensor, gamma: Tensor, *, eps: float = 1e-6) -> Tensor:
    """RMS(x)."""
    return _rms_norm(widen(x), gamma, eps)


def pre_rms_norm(
    x: Tensor, residual: Tensor, gamma: Tensor, *, eps: float = 1e-6
) -> tuple[Tensor, Tensor]:
    """RMS(s) and s = x + residual; the norm is of s before it is rounded."""
    s = widen(x) + widen(residual)
    return _rms_norm(s, gamma, eps), narrow(s, x)


def layer_norm_backward(
    grad: Tensor, x: Tensor, gamma: Tensor, grad_sum: Tensor | None = None, *, eps: float = 1e-5
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of LN(x) with respect to x, gamma and beta."""
    n, scale = _normalised(_centered(widen(x)), eps)
    g = widen(grad) * widen(gamma)
    grad_x = (_centered(g) - n * (g * n).mean(-1, keepdim=True)) * scale
    return (
        narrow(_plus(grad_x, grad_sum), x),
        sum_over_rows(widen(grad) * n, x),
        sum_over_rows(widen(grad), x),
    )


def rms_norm_backward(
    grad: Tensor, x: Tensor, gamma: Tensor, grad_sum: Tensor | None = None, *, eps: float = 1e-6
) -> tuple[Tensor, Tensor]:
    """Gradients of RMS(x) with respect to x and gamma."""
    n, scale = _normalised(widen(x), eps)
    g = widen(grad) * widen(gamma)
    grad_x = (g - n * (g * n).mean(-1, keepdim=True)) * scale
    return narrow(_plus(grad_x, grad_sum), x), sum_over_rows(widen(grad) * n, x)


def _layer_norm(s: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    n, _ = _normalised(_centered(s), eps)
    return narrow(n * widen(gamma) + widen(beta), gamma)


def _rms_norm(s: Tensor, gamma: Tensor, eps: float) -> Tensor:
    n, _ = _normalised(s, eps)
    return narrow(n * widen(gamma), gamma)


def _centered(s: Tensor) -> Tensor:
    return s - s.mean(-1, keepdim=True)


def _normalised(s: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """S over the root of its mean square, and one over that root."""
    scale = torch.rsqrt(s.square().mean(-1, keepdim=True) + eps)
    return s * scale, scale


def _plus(wide: Tensor, more: Tensor | None) -> Tensor:
    return wide if more is None else wide + widen(more)
