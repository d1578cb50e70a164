"""How gradients flow through the operators."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.autograd import forward_ad

Gradients = tuple[Tensor | None, ...]


class Context(Protocol):
    """What torch hands from the forward to the backward pass, and the keywords we put there."""

    keywords: dict[str, Any]
    saved_tensors: tuple[Tensor, ...]
    needs_input_grad: tuple[bool, ...]

    def save_for_backward(self, *tensors: Tensor) -> None:
        """Keep tensors for the backward pass."""

    def set_materialize_grads(self, value: bool) -> None:
        """Whether the gradient of a result that was not used is zeros, or None."""


@dataclass(frozen=True)
class Autograd:
    """What is kept from the forward pass, and the gradients of the positional arguments."""

    setup: Callable[..., None]
    backward: Callable[..., Gradients]


def any_requires_grad(*args: object, **keywords: object) -> bool:
    """Whether one of the arguments is a tensor that requires a gradient."""
    return any(isinstance(one, Tensor) and one.requires_grad for one in (*args, *keywords.values()))


# torch's own is faster; torch 2.6 does not have it.
asks_for_gradients = getattr(torch._C, "_any_requires_grad", any_requires_grad)


def forward_mode() -> bool:
    """Whether tensors may have tangents, of torch.autograd.forward_ad or torch.func.jvp."""
    return forward_ad._current_level >= 0


def refuse_tangents(op: str, *args: object, **keywords: object) -> None:
    """Raise NotImplementedError if an argument has a tangent: torch would drop it in silence."""
    if forward_mode() and any(
        isinstance(one, Tensor) and forward_ad.unpack_dual(one).tangent is not None
        for one in (*args, *keywords.values())
    ):
        raise NotImplementedError(
            f"{op}: has no derivative in forward mode (torch.func.jvp, torch.autograd.forward_ad); "
            "compute this part with torch.nn.functional"
        )


def save_keywords(
    ctx: Context,
    inputs: tuple[Tensor, ...],
    keyword_only_inputs: dict[str, Any],
    output: object,
) -> None:
    """Keep the keyword arguments."""
    del inputs, output
    ctx.keywords = dict(keyword_only_inputs)


def save_nothing(ctx: Context, inputs: tuple[Tensor, ...], output: object, **_: object) -> None:
    """Keep nothing."""
    del ctx, inputs, output


def save_inputs(ctx: Context, inputs: tuple[Tensor, ...], output: object) -> None:
    """Keep the positional arguments."""
    del output
    ctx.save_for_backward(*inputs)


def save_all(
    ctx: Context,
    inputs: tuple[Tensor, ...],
    keyword_only_inputs: dict[str, Any],
    output: object,
) -> None:
    """Keep the positional and the keyword arguments."""
    save_inputs(ctx, inputs, output)
    ctx.keywords = dict(keyword_only_inputs)


def over_rows(grad: Tensor) -> Tensor:
    """The gradient of a row along the last dimension that was added to every row."""
    return grad.sum_to_size(grad.shape[-1])


def _no_second_derivative(ctx: Context, *grads: Tensor) -> Gradients:
    del ctx, grads
    raise NotImplementedError(
        "fusedops: second derivatives are not provided; compute this part with "
        "torch.nn.functional where create_graph=True is needed"
    )


ONCE = Autograd(save_nothing, _no_second_derivative)
"""For the gradient of an operator, which has none itself."""
