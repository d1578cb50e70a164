"""Where the regions of a workspace lie: sizes in, offsets out."""

from dataclasses import dataclass
from math import prod

import torch

from fusedops import checks
from fusedops.cache_sizes import HEADS_TOGETHER, counters_of, row_of, up

ALIGNMENT = 256  # bytes; of every region and of every part of one
BLOCKS_PER_PROCESSOR = 8  # that may leave partial results, at most


@dataclass(frozen=True)
class Sizes:
    """What a workspace is for.

    Attributes:
        heads: query heads.
        kv_heads: heads of keys and values.
        head_dim: elements of a head.
        layers: layers of the model, each with a cache of its own.
        max_batch: sequences.
        max_tokens: tokens of a sequence.
        dtype: of keys, values and results.
        processors: of the device that count for splitting work; 0 for a CPU.
    """

    heads: int
    kv_heads: int
    head_dim: int
    layers: int
    max_batch: int
    max_tokens: int
    dtype: torch.dtype
    processors: int

    @property
    def row(self) -> int:
        """Elements of a head in the cache: up to whole vectors."""
        return row_of(self.head_dim, self.dtype)


@dataclass(frozen=True)
class Region:
    """Some parts of one shape, one after another.

    Attributes:
        name: what the operators know it as.
        offset: of the first part, in bytes.
        shape: of a part.
        dtype: of its elements.
        parts: how many; a layer's keys are one.
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
        return up(self.used, ALIGNMENT)

    @property
    def bytes(self) -> int:
        """Bytes of the region."""
        return self.step * self.parts

    def part(self, at: int) -> slice:
        """The bytes of a part."""
        begin = self.offset + at * self.step
        return slice(begin, begin + self.used)


@dataclass(frozen=True)
class Layout:
    """All regions, none of which overlap."""

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
        widths = [max(len(row[at]) for row in rows) for at in range(3)]
        return "\n".join(
            f"  {name:<{widths[0]}}  {offset:>{widths[1]}}  {size:>{widths[2]}}  {shape}"
            for name, offset, size, shape in rows
        )


def layout_of(sizes: Sizes) -> Layout:
    """The regions that `sizes` asks for."""
    cache = (sizes.max_batch, sizes.kv_heads, sizes.max_tokens, sizes.row)
    together = min(sizes.heads // sizes.kv_heads, HEADS_TOGETHER)
    counters = counters_of(sizes.max_batch, sizes.heads, sizes.kv_heads)
    partial = together * sizes.row + up(2 * together, 4)  # floats, of whole vectors
    wanted = (
        ("keys", cache, sizes.dtype, sizes.layers),
        ("values", cache, sizes.dtype, sizes.layers),
        ("context", (sizes.max_batch, 1, sizes.heads * sizes.head_dim), sizes.dtype, 1),
        ("positions", (sizes.max_batch,), torch.int32, 1),
        ("counters", (counters,), torch.int32, 1),
        ("partials", (BLOCKS_PER_PROCESSOR * sizes.processors * partial,), torch.float32, 1),
    )
    regions: list[Region] = []
    offset = 0
    for name, shape, dtype, parts in wanted:
        regions.append(Region(name, offset, shape, dtype, parts))
        offset += regions[-1].bytes
    return Layout(tuple(regions))
