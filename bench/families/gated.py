"""One half of a row times an activation of the other."""

from collections.abc import Mapping

import torch
from kernelbench.case import Call, Case, Family, Operator, Shape, nbytes, normal
from kernelbench.peers import library
from torch import Tensor
from torch.nn import functional

import fusedops


def _eager(activation: Call) -> Call:
    def call(x: Tensor, *bias: Tensor) -> Tensor:
        value, gate = (x + bias[0] if bias else x).chunk(2, dim=-1)
        activated: Tensor = activation(gate)
        return value * activated

    return call


LIGER_SWIGLU = library("liger_kernel.ops.swiglu", "LigerFusedGateUpSiLUMulFunction", "apply")
LIGER_GEGLU = library("liger_kernel.ops.geglu", "LigerGELUMulFunction", "apply")


def _two_matrices(x: Tensor) -> Tensor:
    """What Liger-Kernel's takes: the memory of x read as two matrices is the same work."""
    return x.view(2, -1, x.shape[-1] // 2)


def _operator(
    kind: str, activation: Call, others: Mapping[str, Call], *, bias: bool = False
) -> Operator:
    def make(shape: Shape, dtype: torch.dtype) -> Case:
        both = (*shape[:-1], 2 * shape[-1])
        inputs = (both, both[-1:]) if bias else (both,)
        return Case(
            "gated_activation",
            shape,
            dtype,
            inputs=normal(*inputs, dtype=dtype),
            ours=lambda x, *bias: fusedops.gated_activation(x, *bias, kind=kind),
            peers={"eager": _eager(activation), **others},
            bytes_moved=nbytes(dtype, *inputs, shape),
            way=f"{kind} bias" if bias else kind,
        )

    return Operator("gated_activation", make)


FAMILY = Family(
    "gated",
    (
        _operator(
            "swiglu",
            functional.silu,
            {"liger": LIGER_SWIGLU, "flashinfer": library("flashinfer", "silu_and_mul")},
        ),
        _operator("swiglu", functional.silu, {}, bias=True),
        _operator(
            "geglu",
            lambda gate: functional.gelu(gate, approximate="tanh"),
            {
                "liger": lambda x: LIGER_GEGLU(*_two_matrices(x)),
                "flashinfer": library("flashinfer", "gelu_tanh_and_mul"),
            },
        ),
        _operator(
            "geglu_erf", functional.gelu, {"flashinfer": library("flashinfer", "gelu_and_mul")}
        ),
        _operator("reglu", torch.relu, {}),
    ),
)
