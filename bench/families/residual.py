"""Sums of a residual, biases and other layers' results."""

import torch
from kernelbench.case import Case, Family, Operator, Shape, nbytes, normal
from torch import Tensor

import fusedops

MP = 2


def _bias_residual(shape: Shape, dtype: torch.dtype) -> Case:
    row = shape[-1:]
    return Case(
        "bias_residual",
        shape,
        dtype,
        inputs=normal(shape, shape, row, dtype=dtype),
        ours=fusedops.bias_residual,
        peers={"eager": lambda x, residual, bias: x + bias + residual},
        bytes_moved=nbytes(dtype, shape, shape, shape, row),
    )


def _pre_layer_norm(h: Tensor, r: Tensor, attn: Tensor, attn_b: Tensor, final_b: Tensor) -> Tensor:
    return (r + attn + final_b + attn_b) / MP + h


def _gpt_j(h: Tensor, r: Tensor, attn: Tensor, attn_b: Tensor, final_b: Tensor) -> Tensor:
    return h + attn + (r + final_b + attn_b) / MP


def _residual_add_bias(*, mlp_after_attn: bool) -> Operator:
    def make(shape: Shape, dtype: torch.dtype) -> Case:
        row = shape[-1:]
        return Case(
            "residual_add_bias",
            shape,
            dtype,
            inputs=normal(shape, shape, shape, row, row, dtype=dtype),
            ours=lambda *args: fusedops.residual_add_bias(
                *args, mp_size=MP, mlp_after_attn=mlp_after_attn, add_bias=True, preln=True
            ),
            peers={"eager": _pre_layer_norm if mlp_after_attn else _gpt_j},
            bytes_moved=nbytes(dtype, shape, shape, shape, shape, row, row),
            way="" if mlp_after_attn else "gpt-j",
        )

    return Operator("residual_add_bias", make)


def _moe_res_matmul(shape: Shape, dtype: torch.dtype) -> Case:
    width = shape[-1]
    return Case(
        "moe_res_matmul",
        shape,
        dtype,
        inputs=normal(shape, (2 * width,), shape, dtype=dtype),
        ours=fusedops.moe_res_matmul,
        peers={"eager": lambda res, coef, out: out * coef[width:] + res * coef[:width]},
        bytes_moved=nbytes(dtype, shape, shape, shape, (2 * width,)),
    )


FAMILY = Family(
    "residual",
    (
        Operator("bias_residual", _bias_residual),
        _residual_add_bias(mlp_after_attn=True),
        _residual_add_bias(mlp_after_attn=False),
        Operator("moe_res_matmul", _moe_res_matmul),
    ),
)
