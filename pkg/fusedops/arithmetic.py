"""The arithmetic of the references: float32, or float64 for float64, rounded once at the end.

At the infinities the activations are the formulas' limits, where torch's own may give NaN. Autocast
does not change it.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

T = TypeVar("T")

# Beyond +-these the slopes are 0 or 1 in every dtype, and no exponential overflows to NaN.
_FLAT_GELU = 64.0
_FLAT_SILU = 700.0
# Asked once: torch.compile of torch 2.11 cannot trace the question.
_WITH_AUTOCAST = tuple(
    device for device in ("cpu", "cuda", "xpu", "mps") if torch.amp.is_autocast_available(device)
)


def _device_of(args: Sequence[object]) -> str:
    """The type of the first tensor's device."""
    # No next(…, default): torch.compile of torch 2.8 cannot trace it.
    for arg in args:
        if isinstance(arg, Tensor):
            return arg.device.type
    return "meta"


def without_autocast(function: Callable[..., T]) -> Callable[..., T]:
    """The function with autocast off for the device of its first tensor.

    No operator casts its arguments, but PyTorch's products would, in a reference or a gradient.
    """

    @functools.wraps(function)
    def call(*args: Any, **keywords: Any) -> T:  # noqa: ANN401 - what function takes
        device = _device_of(args)
        if device not in _WITH_AUTOCAST or not torch.is_autocast_enabled(device):
            return function(*args, **keywords)
        with torch.autocast(device, enabled=False):
            return function(*args, **keywords)

    return call


def widen(tensor: Tensor) -> Tensor:
    """The tensor in the arithmetic's type."""
    return tensor if tensor.dtype == torch.float64 else tensor.float()


def narrow(wide: Tensor, like: Tensor) -> Tensor:
    """A contiguous result in the dtype of `like`."""
    return wide.to(like.dtype).contiguous()


def sum_over_rows(wide: Tensor, like: Tensor) -> Tensor:
    """The sum of the last dimension's rows, in the dtype of `like`."""
    rows = tuple(range(wide.dim() - 1))
    return narrow(wide.sum(rows) if rows else wide.clone(), like)


def gelu(v: Tensor, approximate: str) -> Tensor:
    """GELU in the form that torch calls "tanh" or "none"."""
    return _with_limits(v, F.gelu(v, approximate=approximate))


def gelu_backward(grad: Tensor, v: Tensor, approximate: str) -> Tensor:
    """The gradient with respect to v."""
    flat = v.clamp(-_FLAT_GELU, _FLAT_GELU)
    result: Tensor = torch.ops.aten.gelu_backward(grad, flat, approximate=approximate)
    return result


def silu(v: Tensor) -> Tensor:
    """SiLU, v / (1 + exp(-v))."""
    return _with_limits(v, F.silu(v))


def silu_backward(grad: Tensor, v: Tensor) -> Tensor:
    """The gradient with respect to v."""
    result: Tensor = torch.ops.aten.silu_backward(grad, v.clamp(-_FLAT_SILU, _FLAT_SILU))
    return result


def relu_backward(grad: Tensor, v: Tensor) -> Tensor:
    """The gradient of max(v, 0) with respect to v; the slope at 0 is 0."""
    return torch.where(v <= 0, 0, grad)


def _with_limits(v: Tensor, y: Tensor) -> Tensor:
    return torch.where(v.isinf(), v.clamp_min(0), y)
