"""The layout of a workspace: its sizes, and the offsets of its regions."""

from dataclasses import dataclass
from math import prod

import torch

from fusedops import checks
from fusedops.families.attention.cache import (
    HEADS_PER_BLOCK,
    cache_row,
    counters_of_step,
    round_up,
)

ALIGNMENT = 256  # bytes; of every region and of every part of a region
BLOCKS_PER_PROCESSOR = 8  # that may leave partial results, at most


@dataclass(frozen=True)
class Sizes:
    """The sizes of a workspace.

    Attributes:
        heads: query heads.
        kv_heads: heads of keys and values.
        head_dim: elements of a head.
        layers: layers of the model, each with a cache of its own.
        max_batch: sequences.
        max_tokens: tokens of a sequence.
        dtype: of keys, values and results.
        processors: of the device that count for splitting work; 0 for a CPU.
        results: bytes for results and temporaries of operators that are given the workspace.
    """

    heads: int
    kv_heads: int
    head_dim: int
    layers: int
    max_batch: int
    max_tokens: int
    dtype: torch.dtype
    processors: int
    results: int = 0

    @property
    def row(self) -> int:
        """Elements of a head in the cache, padded to whole vectors."""
        return cache_row(self.head_dim, self.dtype)


@dataclass(frozen=True)
class Region:
    """Parts of the same shape, one after another.

    Attributes:
        name: of the field of Memory.
        offset: of the first part, in bytes.
        shape: of a part.
        dtype: of its elements.
        parts: number of parts; the keys of a layer are a part.
    """

    name: str
    offset: int
    shape: tuple[int, ...]
    dtype: torch.dtype
    parts: int = 1

    @property
    def used(self) -> int:
        """Bytes of a part's elements."""
        return prod(self.shape) * self.dtype.itemsize

    @property
    def step(self) -> int:
        """Bytes from a part to the next."""
        return round_up(self.used, ALIGNMENT)

    @property
    def bytes(self) -> int:
        """Bytes of the region."""
        return self.step * self.parts

    def part(self, index: int) -> slice:
        """The bytes of a part."""
        begin = self.offset + index * self.step
        return slice(begin, begin + self.used)


@dataclass(frozen=True)
class Layout:
    """All regions. They do not overlap."""

    regions: tuple[Region, ...]

    @property
    def bytes(self) -> int:
        """Bytes of all regions."""
        return sum(region.bytes for region in self.regions)

    def table(self) -> str:
        """A line a region: name, offset, bytes, parts and shape."""
        rows = [("region", "offset", "bytes", "shape")]
        for region in self.regions:
            shape = " x ".join(map(str, region.shape))
            times = f"{region.parts} of " if region.parts > 1 else ""
            dtype = checks.dtype_name(region.dtype)
            offset, size = str(region.offset), str(region.bytes)
            rows.append((region.name, offset, size, f"{times}{shape} {dtype}"))
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        return "\n".join(
            f"  {name:<{widths[0]}}  {offset:>{widths[1]}}  {size:>{widths[2]}}  {shape}"
            for name, offset, size, shape in rows
        )


def layout_of(sizes: Sizes) -> Layout:
    """The regions of a workspace of these sizes."""
    cache = (sizes.max_batch, sizes.kv_heads, sizes.max_tokens, sizes.row)
    heads = min(sizes.heads // sizes.kv_heads, HEADS_PER_BLOCK)
    counters = counters_of_step(sizes.max_batch, sizes.heads, sizes.kv_heads)
    partial = heads * sizes.row + round_up(2 * heads, 4)  # floats, of whole vectors
    parts_of_regions = (
        ("keys", cache, sizes.dtype, sizes.layers),
        ("values", cache, sizes.dtype, sizes.layers),
        ("context", (sizes.max_batch, 1, sizes.heads * sizes.head_dim), sizes.dtype, 1),
        ("positions", (sizes.max_batch,), torch.int32, 1),
        ("counters", (counters,), torch.int32, 1),
        ("partials", (BLOCKS_PER_PROCESSOR * sizes.processors * partial,), torch.float32, 1),
        ("results", (sizes.results,), torch.uint8, 1),
    )
    regions: list[Region] = []
    offset = 0
    for name, shape, dtype, parts in parts_of_regions:
        regions.append(Region(name, offset, shape, dtype, parts))
        offset += regions[-1].bytes
    return Layout(tuple(regions))
