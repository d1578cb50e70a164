"""What is timed: one call of an operator, and the same computation by others."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

Shape = tuple[int, ...]
Call = Callable[..., Any]
Arguments = tuple[Any, ...]

DEVICE = torch.device("cuda")
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
HALVES = (torch.float16, torch.bfloat16)

# Large; 64 MiB in 16 bits, and with odd rows; middle. Then what a decode step has.
LARGE: tuple[Shape, ...] = ((16384, 16384), (8192, 4096), (8192, 4097), (2048, 4096))
DECODE: tuple[Shape, ...] = ((32, 4096), (32, 16384), (8, 8192), (1, 4096), (1, 16384))
ROWS = LARGE + DECODE
QUICK: tuple[Shape, ...] = ((8192, 4096), (32, 4096))

# Calls that move less are little more than a launch: they are compared in microseconds.
BY_TIME_BELOW = 1 << 24


@dataclass(frozen=True)
class Case:
    """One way of calling an operator, at one shape and dtype.

    Attributes:
        op: its public name.
        shape: as the tables show it.
        dtype: of the inputs.
        inputs: makes fresh random arguments on a device.
        ours: the operator.
        peers: the same computation by others, from the same arguments. The first is plain PyTorch:
            it says what is right, and goes through torch.compile too.
        bytes_moved: the fewest bytes: every input read once, every output written once.
        way: what tells this way of calling from others of the operator.
        compiled: torch.compile can make something of the first peer.
        by_time: compared in microseconds; None leaves it to the bytes.
        tolerance: of the relative difference between ours and the first peer.
    """

    op: str
    shape: Shape
    dtype: torch.dtype
    inputs: Callable[[torch.device], Arguments]
    ours: Call
    peers: Mapping[str, Call]
    bytes_moved: int
    way: str = ""
    compiled: bool = True
    by_time: bool | None = None
    tolerance: float = 2e-2

    @property
    def plain(self) -> Call:
        """The first peer."""
        return next(iter(self.peers.values()))

    @property
    def in_time(self) -> bool:
        """Whether microseconds say more than a share of the bandwidth."""
        return self.bytes_moved < BY_TIME_BELOW if self.by_time is None else self.by_time

    @property
    def dtype_name(self) -> str:
        """E.g. float16."""
        return str(self.dtype).removeprefix("torch.")

    @property
    def shape_name(self) -> str:
        """E.g. 8192x4096."""
        return "x".join(map(str, self.shape))


@dataclass(frozen=True)
class Choice:
    """Which cells a run times; an empty choice is all of them."""

    ops: frozenset[str] = frozenset()
    dtypes: frozenset[str] = frozenset()
    shapes: frozenset[str] = frozenset()
    quick: bool = False

    def takes(self, case: Case) -> bool:
        """Whether the cell is one of them."""
        return all(
            not wanted or name in wanted
            for name, wanted in (
                (case.op, self.ops),
                (case.dtype_name, self.dtypes),
                (case.shape_name, self.shapes),
            )
        )


@dataclass(frozen=True)
class Operator:
    """One way of calling a public operator: its cases by shape and dtype.

    Attributes:
        name: fusedops has it, or it is skipped.
        make: the case of a shape and a dtype.
        shapes: that are timed; `quick` the two of them for a short run.
        tiny: a shape that keeps neither the GPU nor a CPU busy.
        dtypes: that are timed.
    """

    name: str
    make: Callable[[Shape, torch.dtype], Case]
    shapes: Sequence[Shape] = ROWS
    quick: Sequence[Shape] = QUICK
    tiny: Shape = (4, 64)
    dtypes: Sequence[torch.dtype] = DTYPES

    def cases(self, choice: Choice) -> Iterator[Case]:
        """Those of the choice, dtype by dtype."""
        made = (
            self.make(shape, dtype)
            for dtype in self.dtypes
            for shape in (self.quick if choice.quick else self.shapes)
        )
        return filter(choice.takes, made)

    @property
    def smallest(self) -> Case:
        """Its call on tiny tensors, where the time is the host's."""
        return self.make(self.tiny, self.dtypes[-1])


@dataclass(frozen=True)
class Family:
    """Operators that share kernels, and a page in docs/ops."""

    name: str
    operators: Sequence[Operator] = field(default=())


def nbytes(dtype: torch.dtype, *shapes: Shape) -> int:
    """Bytes of tensors of these shapes."""
    return sum(math.prod(shape) for shape in shapes) * dtype.itemsize


def normal(
    *shapes: Shape, dtype: torch.dtype, spread: float = 1.0
) -> Callable[[torch.device], tuple[Tensor, ...]]:
    """Makes tensors of normal numbers."""

    def make(device: torch.device) -> tuple[Tensor, ...]:
        return tuple(
            torch.empty(shape, device=device, dtype=dtype).normal_(std=spread) for shape in shapes
        )

    return make
