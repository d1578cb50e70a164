"""Products with weights and what is fused with them; a shape is rows x width x inner width.

Compared by time: with few rows they read the weights, with many they compute.
"""

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

import torch
from kernelbench.case import HALVES, Call, Case, Family, Operator, Shape, nbytes, normal
from torch import Tensor
from torch.nn import functional

import fusedops
from families.gemm_int8 import VECTOR_MATMUL_INT8

ROWS = (1, 8, 32, 128, 1024, 4096)
SHAPES: tuple[Shape, ...] = tuple((rows, 4096, 14336) for rows in ROWS)
QKV: tuple[Shape, ...] = tuple((rows, 4096, 6144) for rows in ROWS)
# Products of a decode step of a 1 B and an 8 B Llama.
DECODE: tuple[tuple[int, int], ...] = ((2048, 2560), (2048, 11264), (4096, 6144), (14336, 4096))
TINY: Shape = (2, 16, 32)
EXPERTS = 2
EPS = 1e-5
SPREAD = 0.05  # so small that no sum leaves float16

Pair = tuple[Tensor, Tensor]
Shapes = Callable[[int, int, int], tuple[Shape, ...]]


def _operator(
    name: str,
    eager: Call,
    arguments: Shapes,
    results: Shapes,
    *,
    keywords: Mapping[str, object] = MappingProxyType({}),
    shapes: tuple[Shape, ...] = SHAPES,
    by_columns: bool = False,
) -> Operator:
    """Arguments and results as shapes of (rows, width, inner width).

    `by_columns`: the second argument, a weight, is the transposed view of a torch.nn.Linear's.
    """

    def laid_out(drawn: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        x, weight, *rest = drawn
        return (x, weight.t().contiguous().t(), *rest) if by_columns else drawn

    def make(shape: Shape, dtype: torch.dtype) -> Case:
        taken = arguments(*shape)
        draw = normal(*taken, dtype=dtype, spread=SPREAD)
        return Case(
            name,
            shape,
            dtype,
            inputs=lambda device: laid_out(draw(device)),
            ours=partial(getattr(fusedops, name), **keywords),
            peers={"eager": eager},
            bytes_moved=nbytes(dtype, *taken, *results(*shape)),
            by_time=True,
        )

    return Operator(name, make, shapes, (shapes[2], shapes[-1]), TINY, HALVES)


def _layer_norm(x: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
    return functional.layer_norm(x, x.shape[-1:], gamma, beta, EPS)


def _rms_norm(x: Tensor, gamma: Tensor) -> Tensor:
    return functional.rms_norm(x, x.shape[-1:], gamma, EPS)


def _fused_gemm_gelu(x: Tensor, weight: Tensor, bias: Tensor, weight2: Tensor) -> Tensor:
    return functional.gelu(torch.addmm(bias, x, weight), approximate="tanh") @ weight2


def _qkv_gemm(x: Tensor, weight: Tensor, bias: Tensor, gamma: Tensor, beta: Tensor) -> Pair:
    normed = _layer_norm(x, gamma, beta)
    return torch.addmm(bias, normed, weight), normed


def _rms_qkv_gemm(x: Tensor, weight: Tensor, gamma: Tensor) -> Pair:
    normed = _rms_norm(x, gamma)
    return normed @ weight, normed


def _mlp_gemm(
    x: Tensor,
    residual: Tensor,
    input_bias: Tensor,
    weight1: Tensor,
    bias1: Tensor,
    weight2: Tensor,
    gamma: Tensor,
    beta: Tensor,
) -> Pair:
    normed = _layer_norm(x + residual + input_bias, gamma, beta)
    return _fused_gemm_gelu(normed, weight1, bias1, weight2), normed


def _decode_gemm(x: Tensor, weight: Tensor, gamma: Tensor, residual: Tensor) -> Tensor:
    return residual + _rms_norm(x, gamma) @ weight


def _rms_mlp_gemm(
    x: Tensor, residual: Tensor, weight1: Tensor, weight2: Tensor, gamma: Tensor
) -> Pair:
    total = x + residual
    value, gate = (_rms_norm(total, gamma) @ weight1).chunk(2, -1)
    return (value * functional.silu(gate)) @ weight2, total


FAMILY = Family(
    "gemm",
    (
        _operator(
            "vector_matmul",
            torch.matmul,
            lambda rows, width, inner: ((rows, width), (width, inner)),
            lambda rows, _, inner: ((rows, inner),),
        ),
        _operator(
            "linear_layer",
            lambda x, weight, bias: torch.addmm(bias, x, weight),
            lambda rows, width, inner: ((rows, width), (width, inner), (inner,)),
            lambda rows, _, inner: ((rows, inner),),
        ),
        _operator(
            "fused_gemm_gelu",
            _fused_gemm_gelu,
            lambda rows, width, inner: ((rows, width), (width, inner), (inner,), (inner, width)),
            lambda rows, width, _: ((rows, width),),
        ),
        _operator(
            "einsum_sec_sm_ecm",
            lambda q, weight: torch.einsum("sec,sm->ecm", q, weight),
            lambda rows, width, inner: ((width, EXPERTS, -(-rows // EXPERTS)), (width, inner)),
            lambda rows, _, inner: ((EXPERTS, -(-rows // EXPERTS), inner),),
        ),
        _operator(
            "qkv_gemm",
            _qkv_gemm,
            lambda rows, width, inner: (
                *((rows, width), (width, inner), (inner,)),
                *((width,), (width,)),
            ),
            lambda rows, width, inner: ((rows, inner), (rows, width)),
            keywords={"eps": EPS},
            shapes=QKV,
        ),
        _operator(
            "rms_qkv_gemm",
            _rms_qkv_gemm,
            lambda rows, width, inner: ((rows, width), (width, inner), (width,)),
            lambda rows, width, inner: ((rows, inner), (rows, width)),
            keywords={"eps": EPS},
            shapes=QKV,
        ),
        _operator(
            "mlp_gemm",
            _mlp_gemm,
            lambda rows, width, inner: (
                *((rows, width), (rows, width), (width,)),
                *((width, inner), (inner,), (inner, width)),
                *((width,), (width,)),
            ),
            lambda rows, width, _: ((rows, width), (rows, width)),
            keywords={"eps": EPS, "activation": "gelu"},
        ),
        _operator(
            "rms_mlp_gemm",
            _rms_mlp_gemm,
            lambda rows, width, inner: (
                *((rows, width), (rows, width)),
                *((width, 2 * inner), (inner, width), (width,)),
            ),
            lambda rows, width, _: ((rows, width), (rows, width)),
            keywords={"eps": EPS, "activation": "swiglu"},
        ),
        _operator(
            "decode_gemm",
            _decode_gemm,
            lambda rows, width, inner: (
                *((rows, width), (width, inner)),
                *((width,), (rows, inner)),
            ),
            lambda rows, _, inner: ((rows, inner),),
            keywords={"eps": EPS},
            shapes=tuple((rows, *widths) for rows in (1, 4) for widths in DECODE),
            by_columns=True,
        ),
        VECTOR_MATMUL_INT8,
    ),
)
