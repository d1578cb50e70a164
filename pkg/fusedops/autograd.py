"""How gradients flow through the operators."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

Gradients = tuple[Tensor | None, ...]


class Context(Protocol):
    """What torch hands from the forward to the backward pass, and the keywords we put there."""

    keywords: dict[str, Any]
    saved_tensors: tuple[Tensor, ...]

    def save_for_backward(self, *tensors: Tensor) -> None:
        """Keep tensors for the backward pass."""


@dataclass(frozen=True)
class Autograd:
    """What is kept from the forward pass, and the gradients of the positional arguments."""

    setup: Callable[..., None]
    backward: Callable[..., Gradients]


def _save_keywords(
    ctx: Context,
    inputs: tuple[Tensor, ...],
    keyword_only_inputs: dict[str, Any],
    output: object,
) -> None:
    del inputs, output
    ctx.keywords = dict(keyword_only_inputs)


def _save_nothing(ctx: Context, inputs: tuple[Tensor, ...], output: object) -> None:
    del ctx, inputs, output


def _save_inputs(ctx: Context, inputs: tuple[Tensor, ...], output: object) -> None:
    del output
    ctx.save_for_backward(*inputs)


def _save_all(
    ctx: Context,
    inputs: tuple[Tensor, ...],
    keyword_only_inputs: dict[str, Any],
    output: object,
) -> None:
    _save_inputs(ctx, inputs, output)
    ctx.keywords = dict(keyword_only_inputs)


def _vector_add(ctx: Context, grad: Tensor) -> Gradients:
    return grad * ctx.keywords["gamma"], grad


def _bias_add(ctx: Context, grad: Tensor) -> Gradients:
    del ctx
    return grad, grad.sum_to_size(grad.shape[-1])


def _bias_relu(ctx: Context, grad: Tensor) -> Gradients:
    x, bias = ctx.saved_tensors
    return tuple(torch.ops.fusedops.bias_relu_backward(grad, x, bias))


def _bias_gelu(ctx: Context, grad: Tensor) -> Gradients:
    x, bias = ctx.saved_tensors
    return tuple(torch.ops.fusedops.bias_gelu_backward(grad, x, bias, **ctx.keywords))


def _no_second_derivative(ctx: Context, *grads: Tensor) -> Gradients:
    del ctx, grads
    raise NotImplementedError(
        "fusedops: second derivatives are not provided; compute this part with "
        "torch.nn.functional where create_graph=True is needed"
    )


VECTOR_ADD = Autograd(_save_keywords, _vector_add)
BIAS_ADD = Autograd(_save_nothing, _bias_add)
BIAS_RELU = Autograd(_save_inputs, _bias_relu)
BIAS_GELU = Autograd(_save_all, _bias_gelu)
ONCE = Autograd(_save_nothing, _no_second_derivative)
ONCE_WITH_KEYWORDS = Autograd(_save_keywords, _no_second_derivative)
