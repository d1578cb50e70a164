"""A call of an operator: ours, the truth in float64, its arguments, and the shapes to try."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

Shape = tuple[int, ...]
Make = Callable[[Shape, torch.dtype, torch.device], tuple[Any, ...]]
"""From the shape of a result, a dtype and a device to fresh random positional arguments."""

DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
SMALL: tuple[Shape, ...] = ((7,), (5, 3, 129))
EMPTY: tuple[Shape, ...] = ((0,), (3, 0), (0, 5))
# Odd, even, tiny, wide, tall; vectors hold 2 to 8 elements and blocks 128 of them. The last has
# more rows than one dimension of a grid has blocks.
LARGE: tuple[Shape, ...] = (
    (1,),
    (4096,),
    (2, 1),
    (1023, 8),
    (4099, 3),
    (33, 1001),
    (300, 2048),
    (64, 4097),
    (17, 40_000),
    (1, 100_003),
    (2, 3, 5, 7, 11),
    (140_001, 512),
)
BACKWARD: tuple[Shape, ...] = (
    (2, 1),
    (4099, 3),
    (33, 1001),
    (700, 2048),
    (64, 4097),
    (5003, 1031),
)


@dataclass(frozen=True)
class Case:
    """One way of calling a public operator.

    Attributes:
        name: the operator, and a word where it has several ways.
        function: the operator as called; gives a tensor or a tuple of them.
        exact: the same in float64, from the same positional arguments widened, and no keywords.
        inputs: makes positional arguments.
        keywords: of the call.
        dtypes: those it is for.
        small, empty, large: shapes of results; the large ones are for a GPU.
        backward: shapes to try gradients with on a GPU; the last is for two equal runs.
        strided: a shape to try with other strides and alignments.
        tiny: a shape for gradcheck.
        ranks: how many dimensions a shape may have.
        lasts: what its last may be; None for anything.
        least: elements of a shape, at least.
        most: what the first argument may be scaled up to.
        differentiable: gradients flow through all floating arguments.
        vmap: it has a rule for vmap.
        rowwise: a row of the results depends on that row of the arguments alone.
        gradient_ulps: relative error of a gradient's norm, in ulps of the dtype.
        kinked: a sum near 0 may be rounded to the other side of a kink, where its slope jumps.
        relative, absolute: what float32 arithmetic may add to half an ulp of the result's dtype.
        sum_ulps: what a long sum, and roundings before it, may add: in ulps of the dtype of the
            results' root mean square.
        float64_absolute: what float64 arithmetic may add, if more than 2^-26 of `absolute`.
        float32_ulps: the same for float32, which has no room for the roundings of such a sum.
    """

    name: str
    function: Callable[..., Any]
    exact: Callable[..., Any]
    inputs: Make
    keywords: Mapping[str, Any] = field(default_factory=dict)
    dtypes: Sequence[torch.dtype] = DTYPES
    small: Sequence[Shape] = SMALL
    empty: Sequence[Shape] = EMPTY
    large: Sequence[Shape] = LARGE
    backward: Sequence[Shape] = BACKWARD
    strided: Shape = (37, 264)
    tiny: Shape = (3, 5)
    ranks: Sequence[int] = (1, 2, 3, 4)
    lasts: Sequence[int] | None = None
    least: int = 1
    most: float = 0.0
    differentiable: bool = True
    rowwise: bool = True
    vmap: bool = True
    relative: float = 0.0
    absolute: float = 0.0
    sum_ulps: float = 0.0
    float32_ulps: float = 0.0
    float64_absolute: float = 0.0
    gradient_ulps: float = 8.0
    kinked: bool = False

    @property
    def op(self) -> str:
        """The operator's name."""
        return self.name.split()[0]

    def slope_error(self, scale: float) -> float:
        """What a slope on the other side of a kink changes, in a gradient whose norm is `scale`.

        Up to 5.4 was seen in float16, whatever the norm.
        """
        return min(8 / scale, 0.2) if self.kinked and scale else 0.0

    def ours(self, *args: Any) -> Any:
        """The call."""
        return self.function(*args, **self.keywords)


Private = Callable[[torch.device], tuple[tuple[Any, ...], dict[str, Any]]]
"""Arguments of an operator that is not public, e.g. a gradient's, for a device."""


def randn(shape: Shape, dtype: torch.dtype, device: torch.device, spread: float = 1.0) -> Tensor:
    """Normal numbers, rounded to `dtype`."""
    return (torch.randn(shape, device=device, dtype=torch.float64) * spread).to(dtype)


def matrices(count: int) -> Make:
    """For operators of tensors of one shape. Spread over the range where activations bend."""

    def make(shape: Shape, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, ...]:
        return tuple(randn(shape, dtype, device, 2.5) for _ in range(count))

    return make


def matrices_and_rows(count: int, rows: int) -> Make:
    """For operators of tensors [..., N], then of rows [N]."""

    def make(shape: Shape, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, ...]:
        tail = tuple(randn(shape[-1:], dtype, device) for _ in range(rows))
        return (*matrices(count)(shape, dtype, device), *tail)

    return make


def copies(args: Sequence[Any]) -> tuple[Any, ...]:
    """The same arguments, for a call that writes to some; tensors with the same strides."""
    return tuple(arg.clone() if isinstance(arg, Tensor) else arg for arg in args)


def outputs(result: Any) -> tuple[Tensor, ...]:
    """The results, however many."""
    if result is None:
        return ()
    return (result,) if isinstance(result, Tensor) else tuple(result)


def wide(args: Sequence[Any]) -> tuple[Any, ...]:
    """The arguments, floating tensors in float64."""
    return tuple(
        arg.double() if isinstance(arg, Tensor) and arg.is_floating_point() else arg for arg in args
    )
