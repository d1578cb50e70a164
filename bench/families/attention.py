"""A decode step over a cache of keys and values; a shape is sequences x tokens held."""

import functools
from typing import Any

import torch
from kernelbench.case import HALVES, Call, Case, Family, Operator, Shape, nbytes
from kernelbench.peers import library
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

import fusedops
from fusedops import Workspace

KV_HEADS, HEAD_DIM = 8, 128
PAGE = 16
BATCHES = (1, 4, 16, 32, 64)
TOKENS = (1024, 8192, 32768, 65536)
SHAPES: tuple[Shape, ...] = tuple((batch, tokens) for batch in BATCHES for tokens in TOKENS)
QUICK: tuple[Shape, ...] = ((1, 8192), (32, 8192))
MANY_HEADS: tuple[Shape, ...] = ((32, 16384),)

SINGLE = library("flashinfer", "single_decode_with_kv_cache")
WRAPPER = library("flashinfer", "BatchDecodeWithPagedKVCacheWrapper")


def _heads(qkv: Tensor) -> int:
    return qkv.shape[-1] // HEAD_DIM - 2 * KV_HEADS


def _query(qkv: Tensor) -> Tensor:
    heads = _heads(qkv)
    return qkv[..., : heads * HEAD_DIM].view(-1, heads, 1, HEAD_DIM)


def _sdpa(qkv: Tensor, held: Workspace) -> Tensor:
    keys, values = held.memory.keys[0], held.memory.values[0]
    return scaled_dot_product_attention(_query(qkv), keys, values, enable_gqa=True)


def _single(qkv: Tensor, held: Workspace) -> object:
    keys, values = held.memory.keys[0], held.memory.values[0]
    return SINGLE(_query(qkv).view(-1, HEAD_DIM), keys[0], values[0], "HND")


@functools.cache
def _scratch() -> Tensor:
    return torch.zeros(256 << 20, dtype=torch.uint8, device="cuda")


@functools.lru_cache(maxsize=2)
def _planned(
    batch: int, tokens: int, heads: int, dtype: torch.dtype, *, tensor_cores: bool
) -> Call:
    """FlashInfer's plan for full pages, one after the other."""
    pages = tokens // PAGE
    wrapper: Any = WRAPPER(_scratch(), "HND", False, tensor_cores)
    wrapper.plan(
        torch.arange(batch + 1, dtype=torch.int32, device="cuda") * pages,
        torch.arange(batch * pages, dtype=torch.int32, device="cuda"),
        torch.full((batch,), PAGE, dtype=torch.int32, device="cuda"),
        *(heads, KV_HEADS, HEAD_DIM, PAGE),
        q_data_type=dtype,
    )
    run: Call = wrapper.run
    return run


def _paged(*, tensor_cores: bool) -> Call:
    """The memory of the cache read as pages: other keys for each query, the same work."""

    def call(qkv: Tensor, held: Workspace) -> object:
        keys, values = held.memory.keys[0], held.memory.values[0]
        batch, _, tokens, _ = keys.shape
        pages = (batch * tokens // PAGE, KV_HEADS, PAGE, HEAD_DIM)
        run = _planned(batch, tokens, _heads(qkv), keys.dtype, tensor_cores=tensor_cores)
        query = _query(qkv).view(batch, -1, HEAD_DIM)
        return run(query, (keys.view(pages), values.view(pages)))

    return call


def _ours(qkv: Tensor, held: Workspace) -> Tensor:
    """Positions stay, so every call is the same step."""
    return fusedops.softmax_context(
        qkv, workspace=held, layer_id=0, heads=_heads(qkv), kv_heads=KV_HEADS, last_layer=False
    )


def _decode(shape: Shape, dtype: torch.dtype, *, heads: int = 32, way: str = "decode") -> Case:
    batch, tokens = shape
    width = (heads + 2 * KV_HEADS) * HEAD_DIM

    def inputs(device: torch.device) -> tuple[Tensor, Workspace]:
        """A cache with room for one more token, the step's own, beside random ones."""
        held = Workspace(
            *(heads * HEAD_DIM, heads, KV_HEADS, 1, batch, tokens), dtype=dtype, device=device
        )
        for part in (held.memory.keys[0], held.memory.values[0]):
            part.normal_()
        held.positions.fill_(tokens - 1)
        held.restart(tokens - 1)
        return torch.randn(batch, 1, width, device=device, dtype=dtype), held

    cache = (2, batch, KV_HEADS, tokens, HEAD_DIM)
    return Case(
        "softmax_context",
        shape,
        dtype,
        inputs=inputs,
        ours=_ours,
        peers={
            "sdpa": _sdpa,
            "flashinfer": _paged(tensor_cores=False),
            "flashinfer-tc": _paged(tensor_cores=True),
        }
        | ({"flashinfer-one": _single} if batch == 1 else {}),
        bytes_moved=nbytes(dtype, cache, (batch, width), (batch, heads * HEAD_DIM)),
        way=way,
        compiled=False,
    )


FAMILY = Family(
    "attention",
    (
        Operator("softmax_context", _decode, SHAPES, QUICK, tiny=(2, 32), dtypes=HALVES),
        Operator(
            "softmax_context",
            functools.partial(_decode, heads=64, way="decode, 64 heads"),
            MANY_HEADS,
            (),
            tiny=(2, 32),
            dtypes=HALVES,
        ),
    ),
)
