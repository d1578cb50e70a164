"""One allocation for a model on a device: its KV cache, and what its operators write to."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from fusedops import checks
from fusedops.families.attention.cache import MAX_HEAD_DIM, round_up
from fusedops.kinds import check_integer
from fusedops.workspace_layout import ALIGNMENT, Layout, Region, Sizes, layout_of


@dataclass(frozen=True)
class Memory:
    """The regions as tensors, for the operators. Each keeps the whole allocation alive."""

    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]
    context: Tensor
    positions: Tensor
    counters: Tensor
    partials: Tensor
    results: Tensor


class Workspace:
    """The memory of one model on one device: keys and values of every layer, and results.

    It is one allocation of torch's, taken at once. Operators get disjoint regions of it that start
    on 256 bytes, and their results are tensors over those regions, without a copy: **the next step
    of the same workspace overwrites them**. Such a tensor keeps the memory alive, so using it after
    `release()` is safe.

    Every operator takes `workspace=`. Its results then follow each other in the region "results",
    which has `results` bytes, and its temporaries lie behind them. A result lives until `rewind`
    gives up its place: call it at the beginning of each step, or of each layer. Nothing is
    allocated, and too little room is an error. An argument that a kernel cannot read where it lies
    is copied all the same, to memory of torch's.

    Nothing is shared between two workspaces: two models, streams or devices want one each. As with
    any tensor, a workspace made on one stream may be used on another once that one waits for the
    first; and work on a workspace must be over, or ordered before it, when its memory is given up.

    Attributes:
        sizes: what it is for.
        layout: where its regions lie.
        device: where it is.
    """

    def __init__(
        self,
        hidden: int,
        heads: int,
        kv_heads: int,
        layers: int,
        max_batch: int,
        max_tokens: int,
        dtype: torch.dtype = torch.float16,
        device: torch.device | str = "cuda",
        results: int = 0,
    ) -> None:
        """Take the memory.

        Args:
            hidden: elements of a token's state that attention gives, heads times the head's size;
                a head has up to 256.
            heads: query heads.
            kv_heads: heads of keys and values, a divisor of `heads`.
            layers: layers of the model.
            max_batch: sequences at most.
            max_tokens: tokens of a sequence at most, prompt and steps together.
            dtype: float32, float16 or bfloat16.
            device: where it is to be.
            results: bytes for results and temporaries of operators that are given the workspace.

        Raises:
            TypeError: a size is no integer.
            ValueError: a size is not as above.
            torch.OutOfMemoryError: the device has no room for it.
        """
        self.device = _with_index(torch.device(device))
        check_integer("Workspace", "heads", heads)
        check_integer("Workspace", "hidden", hidden)
        self.sizes = _check_sizes(
            Sizes(
                heads,
                kv_heads,
                hidden // max(heads, 1),
                layers,
                max_batch,
                max_tokens,
                dtype,
                _processors(self.device),
                results,
            ),
            hidden,
        )
        self.layout: Layout = layout_of(self.sizes)
        self._tokens = 0
        self._used = 0
        self._taken: dict[tuple[int, torch.Size, torch.dtype], Tensor] = {}
        self._rests: dict[int, Tensor] = {}
        self._memory: Memory | None = None
        self.retake()

    @property
    def tokens(self) -> int:
        """Tokens of the longest sequence, as the host has counted them.

        Replays of a CUDA graph and compiled code run without the host: tell it with `count`, or
        read `positions`, which are the device's own.
        """
        return self._tokens

    @property
    def positions(self) -> Tensor:
        """Tokens that the cache holds of each sequence, int32 [max_batch], on the device.

        An operator that has attended to a step's tokens in the last layer moves them on.
        """
        return self.memory.positions

    @property
    def memory(self) -> Memory:
        """The regions, for the operators.

        Raises:
            RuntimeError: it has been released.
        """
        if self._memory is None:
            raise RuntimeError("Workspace: it has been released; retake() takes memory anew")
        return self._memory

    @property
    def used(self) -> int:
        """Bytes of the region "results" that results take."""
        return self._used

    def rewind(self, to: int = 0) -> None:
        """Give up the place of all results since `used` was `to`: the next ones overwrite them.

        Raises:
            TypeError: `to` is no integer.
            ValueError: `to` is more than what is used.
        """
        check_integer("Workspace.rewind", "to", to)
        if not 0 <= to <= self._used:
            checks.fail("Workspace.rewind", "to", f"0 to {self._used} (bytes in use)", to)
        self._used = to

    def take(self, op: str, shape: torch.Size, dtype: torch.dtype) -> Tensor:
        """A tensor for the next result; `op` is the operator, for the message.

        The tensors of a step are made once: the next step takes the same ones.

        Raises:
            ValueError: there is no room for it.
        """
        region = self.memory.results
        begin, size = self._used, shape.numel() * dtype.itemsize
        if begin + size > self.sizes.results:
            room = self.sizes.results - begin
            checks.fail(
                op,
                "workspace",
                f"room for {size} bytes of a result",
                f"{room} of {self.sizes.results}; call rewind(), or make it with more results",
            )
        key = begin, shape, dtype
        if (made := self._taken.get(key)) is None:
            with _no_inference_tensors():
                made = self._taken[key] = region[begin : begin + size].view(dtype).view(shape)
        self._used = begin + round_up(size, ALIGNMENT)
        return made

    def rest(self) -> Tensor:
        """What no result takes, for temporaries. Like those of results, a tensor is made once."""
        results = self.memory.results
        if (made := self._rests.get(self._used)) is None:
            with _no_inference_tensors():
                made = self._rests[self._used] = results[self._used :]
        return made

    def count(self, tokens: int) -> None:
        """Count tokens that are taken without the host's knowing, e.g. by a graph's replay.

        Raises:
            TypeError: `tokens` is no integer.
            ValueError: there is no room for so many.
        """
        check_integer("Workspace.count", "tokens", tokens)
        self.check_room(tokens, "Workspace.count", "tokens")
        self._tokens += tokens

    def restart(self, tokens: int) -> None:
        """Count anew: the sequences consist of a prompt of so many tokens."""
        self._tokens = tokens

    def check_room(self, tokens: int, op: str, argument: str, held: int | None = None) -> None:
        """Raise the ValueError that says how many tokens fit, if so many more do not."""
        held = self._tokens if held is None else held
        room = self.sizes.max_tokens - held
        if tokens > room:
            beside = f" beside the {held} that it holds" if held else ""
            expected = f"at most {room} tokens (what fits into the workspace{beside})"
            checks.fail(op, argument, expected, tokens)

    def reset(self) -> None:
        """Forget all sequences: the next token is each one's first."""
        self.memory.positions.zero_()
        self.memory.counters.zero_()
        self._tokens = self._used = 0

    def release(self) -> None:
        """Give up the memory. It is freed once no result of it is left."""
        self._memory = None
        self._taken.clear()
        self._rests.clear()
        self._tokens = self._used = 0

    def retake(self) -> None:
        """Take memory anew, with no sequences; what was held before is given up first."""
        self.release()
        with _no_inference_tensors(), _current(self.device):
            self._memory = self._take()
        self.reset()

    def bytes(self) -> int:
        """Bytes of memory that it takes."""
        return self.layout.bytes

    def __repr__(self) -> str:
        held = f"{self._tokens} of {self.sizes.max_tokens} tokens"
        state = "released" if self._memory is None else held
        return f"Workspace on {self.device}, {self.bytes()} bytes, {state}\n" + self.layout.table()

    def _take(self) -> Memory:
        raw = torch.empty(self.bytes() + ALIGNMENT, dtype=torch.uint8, device=self.device)
        if type(raw) is Tensor and not raw.is_meta:
            buffer = raw[-raw.data_ptr() % ALIGNMENT :]
            parts = {region.name: tuple(_parts(buffer, region)) for region in self.layout.regions}
        else:
            parts = {region.name: _shapes(raw, region) for region in self.layout.regions}
        keys, values = parts["keys"], parts["values"]
        if self.sizes.row != self.sizes.head_dim:  # the padding of a head must add nothing
            for layer in (*keys, *values):
                layer.zero_()
        names = ("context", "positions", "counters", "partials", "results")
        return Memory(keys, values, *(parts[name][0] for name in names))


def _parts(buffer: Tensor, region: Region) -> Iterator[Tensor]:
    """A tensor for each part of the region, with a storage of its own that keeps the buffer alive.

    The tensors are not views of the buffer: torch.compile takes views of several dtypes for the
    same tensor.
    """
    for index in range(region.parts):
        part = buffer[region.part(index)].view(region.dtype).view(region.shape)
        yield from_dlpack(part)


def _shapes(raw: Tensor, region: Region) -> tuple[Tensor, ...]:
    """The parts of a region where tensors have no memory: torch crashes when it exports such."""
    return tuple(raw.new_empty(region.shape, dtype=region.dtype) for _ in range(region.parts))


def _no_inference_tensors() -> AbstractContextManager[object]:
    """Tensors are made that outside of inference mode can be written to as well."""
    return torch.inference_mode(False)


def _current(device: torch.device) -> AbstractContextManager[object]:
    """Make the device current for a while: torch exports the memory of the current device alone."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def _with_index(device: torch.device) -> torch.device:
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return device


def _processors(device: torch.device) -> int:
    if device.type != "cuda":
        return 0
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def _check_sizes(sizes: Sizes, hidden: int) -> Sizes:
    for name in ("kv_heads", "layers", "max_batch", "max_tokens", "results"):
        check_integer("Workspace", name, getattr(sizes, name))
    if sizes.results < 0:
        checks.fail("Workspace", "results", "0 or more bytes", sizes.results)
    for name in ("heads", "kv_heads", "layers", "max_batch", "max_tokens"):
        if getattr(sizes, name) < 1:
            checks.fail("Workspace", name, "at least 1", getattr(sizes, name))
    if hidden < 1 or hidden % sizes.heads != 0:
        checks.fail("Workspace", "hidden", f"a multiple of {sizes.heads} (heads)", hidden)
    if sizes.head_dim > MAX_HEAD_DIM:
        expected = f"at most {MAX_HEAD_DIM} for each of {sizes.heads} heads"
        checks.fail("Workspace", "hidden", expected, hidden)
    if sizes.heads % sizes.kv_heads != 0:
        expected = f"a divisor of {sizes.heads} (heads)"
        checks.fail("Workspace", "kv_heads", expected, sizes.kv_heads)
    if sizes.dtype not in checks.UP_TO_32_BITS:
        name = checks.dtype_name(sizes.dtype)
        checks.fail("Workspace", "dtype", "float32, float16 or bfloat16", name)
    return sizes
