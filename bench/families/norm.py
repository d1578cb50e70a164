"""Normalisation of rows, with and without a residual."""

import torch
from kernelbench.case import DECODE, LARGE, Call, Case, Family, Operator, Shape, nbytes, normal
from kernelbench.peers import library
from torch import Tensor
from torch.nn import functional

import fusedops
from families import gradients

EPS = 1e-5
# Rows that several blocks share: 512 MiB in 16 bits, and an odd one.
LONG: tuple[Shape, ...] = (
    *((4096, 65536), (2048, 131072), (2048, 131073), (1024, 262144), (256, 1048576)),
)
SHAPES = (*LARGE, (32768, 1024), *LONG, (256, 131072), *DECODE)
Pair = tuple[Tensor, Tensor]

LIGER_LAYER_NORM = library("liger_kernel.ops.layer_norm", "LigerLayerNormFunction", "apply")
LIGER_RMS_NORM = library("liger_kernel.ops.rms_norm", "LigerRMSNormFunction", "apply")
LIGER_PRE_RMS_NORM = library(
    "liger_kernel.ops.fused_add_rms_norm", "LigerFusedAddRMSNormFunction", "apply"
)
FLASHINFER_LAYER_NORM = library("flashinfer.norm", "layernorm")
FLASHINFER_RMS_NORM = library("flashinfer", "rmsnorm")
# In place, so that what it works on grows call by call; that changes nothing of its time.
FLASHINFER_PRE_RMS_NORM = library("flashinfer", "fused_add_rmsnorm")
QUACK_LAYER_NORM = library("quack.rmsnorm", "layernorm_fwd")
QUACK_RMS_NORM = library("quack.rmsnorm", "rmsnorm_fwd")


def _layer_norm(x: Tensor, gamma: Tensor, beta: Tensor, *_: Tensor) -> Tensor:
    return functional.layer_norm(x, x.shape[-1:], gamma, beta, EPS)


def _layer_norm_case(shape: Shape, dtype: torch.dtype) -> Case:
    row = shape[-1:]
    weights = normal(shape, row, row, dtype=dtype)

    def inputs(device: torch.device) -> tuple[Tensor, ...]:
        x, gamma, beta = weights(device)
        return x, gamma, beta, gamma.float(), beta.float()  # FlashInfer and QuACK take float32

    return Case(
        "layer_norm",
        shape,
        dtype,
        inputs=inputs,
        ours=lambda x, gamma, beta, *_: fusedops.layer_norm(x, gamma, beta, eps=EPS),
        peers={
            "eager": _layer_norm,
            "liger": lambda x, gamma, beta, *_: LIGER_LAYER_NORM(x, gamma, beta, EPS),
            "flashinfer": lambda x, _g, _b, *wide: FLASHINFER_LAYER_NORM(x, *wide, EPS),
            "quack": lambda x, _g, _b, *wide: QUACK_LAYER_NORM(x, *wide, EPS),
        },
        bytes_moved=nbytes(dtype, shape, shape, row, row),
    )


def _layer_norm_residual_case(shape: Shape, dtype: torch.dtype) -> Case:
    row = shape[-1:]
    return Case(
        "layer_norm_residual",
        shape,
        dtype,
        inputs=normal(shape, row, shape, row, row, dtype=dtype),
        ours=lambda *args: fusedops.layer_norm_residual(*args, eps=EPS),
        peers={"eager": lambda x, bias, res, *w: _layer_norm(x + bias + res, *w)},
        bytes_moved=nbytes(dtype, shape, shape, shape, row, row, row),
    )


def _layer_norm_residual_store(
    x: Tensor, bias: Tensor, residual: Tensor, gamma: Tensor, beta: Tensor
) -> Pair:
    total = x + bias + residual
    return _layer_norm(total, gamma, beta), total


def _layer_norm_residual_store_case(shape: Shape, dtype: torch.dtype) -> Case:
    row = shape[-1:]
    return Case(
        "layer_norm_residual_store",
        shape,
        dtype,
        inputs=normal(shape, row, shape, row, row, dtype=dtype),
        ours=lambda *args: fusedops.layer_norm_residual_store(*args, eps=EPS),
        peers={"eager": _layer_norm_residual_store},
        bytes_moved=nbytes(dtype, shape, shape, shape, shape, row, row, row),
    )


def _rms_norm(x: Tensor, gamma: Tensor) -> Tensor:
    return functional.rms_norm(x, x.shape[-1:], gamma, EPS)


def _rms_norm_case(shape: Shape, dtype: torch.dtype) -> Case:
    row = shape[-1:]
    return Case(
        "rms_norm",
        shape,
        dtype,
        inputs=normal(shape, row, dtype=dtype),
        ours=lambda x, gamma: fusedops.rms_norm(x, gamma, eps=EPS),
        peers={
            "eager": _rms_norm,
            "liger": lambda x, gamma: LIGER_RMS_NORM(x, gamma, EPS),
            "flashinfer": lambda x, gamma: FLASHINFER_RMS_NORM(x, gamma, EPS),
            "quack": lambda x, gamma: QUACK_RMS_NORM(x, gamma, None, None, None, None, EPS),
        },
        bytes_moved=nbytes(dtype, shape, shape, row),
    )


def _pre_rms_norm(x: Tensor, residual: Tensor, gamma: Tensor) -> Pair:
    total = x + residual
    return _rms_norm(total, gamma), total


def _pre_rms_norm_case(shape: Shape, dtype: torch.dtype) -> Case:
    row = shape[-1:]
    peers: dict[str, Call] = {
        "eager": _pre_rms_norm,
        "liger": lambda *args: LIGER_PRE_RMS_NORM(*args, EPS),
        "flashinfer": lambda *args: FLASHINFER_PRE_RMS_NORM(*args, EPS),
        "quack": lambda x, residual, gamma: QUACK_RMS_NORM(
            x, gamma, None, residual, None, None, EPS
        ),
    }
    if row[0] >= 1 << 20 and dtype != torch.float32:
        del peers["flashinfer"]  # 0.7.0 does not return from such a row
    return Case(
        "pre_rms_norm",
        shape,
        dtype,
        inputs=normal(shape, shape, row, dtype=dtype),
        ours=lambda *args: fusedops.pre_rms_norm(*args, eps=EPS),
        peers=peers,
        bytes_moved=nbytes(dtype, shape, shape, shape, shape, row),
    )


FAMILY = Family(
    "norm",
    (
        Operator("rms_norm", _rms_norm_case, SHAPES),
        Operator("pre_rms_norm", _pre_rms_norm_case, SHAPES),
        Operator("layer_norm", _layer_norm_case, SHAPES),
        Operator("layer_norm_residual", _layer_norm_residual_case, SHAPES),
        Operator("layer_norm_residual_store", _layer_norm_residual_store_case, SHAPES),
        *gradients.NORMS,
    ),
)
