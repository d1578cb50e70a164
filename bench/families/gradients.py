"""The gradients of norms and of softmax, as autograd asks for them."""

from functools import partial
from typing import cast

import torch
from kernelbench.case import Case, Operator, Shape, nbytes, normal
from kernelbench.peers import library
from torch import Tensor

EPS = 1e-5
# Rows of a block, of a few blocks, and those of norm.LONG that fit a cluster.
SHAPES: tuple[Shape, ...] = (
    *((32768, 1024), (8192, 4096), (8192, 4097), (8192, 8192), (8192, 16384)),
    *((4096, 65536), (2048, 131072), (2048, 131073), (1024, 262144)),
)
QUACK_RMS_NORM = library("quack.rmsnorm", "rmsnorm_bwd")
QUACK_LAYER_NORM = library("quack.rmsnorm", "layernorm_bwd")
QUACK_SOFTMAX = library("quack.softmax", "softmax_bwd")
Tensors = tuple[Tensor, ...]
ATEN = torch.ops.aten
OURS = torch.ops.fusedops


def _norm_case(op: str, shape: Shape, dtype: torch.dtype) -> Case:
    """A norm's: of x, gamma and beta. The peers are given what a forward pass keeps of the rows."""
    row, centered = shape[-1:], op == "layer_norm"
    drawn = normal(shape, shape, row, row, dtype=dtype)

    def inputs(device: torch.device) -> tuple[Tensor, ...]:
        grad, x, gamma, beta = drawn(device)
        variance, mean = torch.var_mean(x.float(), -1, correction=0, keepdim=True)
        if not centered:
            variance, mean = variance + mean.square(), torch.zeros_like(mean)
        return grad, x, gamma, beta, torch.rsqrt(variance + EPS), mean

    def eager(
        grad: Tensor, x: Tensor, gamma: Tensor, beta: Tensor, scale: Tensor, mean: Tensor
    ) -> Tensors:
        if not grad.is_cuda:  # a CPU has not all of these kernels
            g, normed = grad * gamma, (x - mean) * scale
            grad_x = g - normed * (g * normed).mean(-1, keepdim=True)
            if centered:
                grad_x -= g.mean(-1, keepdim=True)
            return scale * grad_x, (grad * normed).sum(0), *([grad.sum(0)] if centered else [])
        wanted = [True, True, True]
        if centered:
            made = ATEN.native_layer_norm_backward(grad, x, row, mean, scale, gamma, beta, wanted)
        else:
            made = ATEN._fused_rms_norm_backward(grad, x, row, scale, gamma, wanted[:2])
        return cast("Tensors", made)

    def quack(
        grad: Tensor, x: Tensor, gamma: Tensor, _: Tensor, scale: Tensor, mean: Tensor
    ) -> object:
        if centered:
            return QUACK_LAYER_NORM(x, gamma, grad, scale.view(-1), mean.view(-1))
        return QUACK_RMS_NORM(x, gamma, grad, scale.view(-1))

    ours = OURS.layer_norm_backward if centered else OURS.rms_norm_backward
    return Case(
        op,
        shape,
        dtype,
        inputs=inputs,
        ours=lambda grad, x, gamma, *_: ours(grad, x, gamma, None, eps=EPS),
        peers={"eager": eager, "quack": quack},
        bytes_moved=nbytes(dtype, shape, shape, shape, *(row,) * (3 if centered else 2)),
        way="gradient",
    )


def _softmax_case(shape: Shape, dtype: torch.dtype) -> Case:
    drawn = normal(shape, shape, dtype=dtype)

    def inputs(device: torch.device) -> tuple[Tensor, ...]:
        grad, scores = drawn(device)
        return grad, torch.softmax(scores, -1)

    return Case(
        "softmax",
        shape,
        dtype,
        inputs=inputs,
        ours=lambda grad, y: OURS.softmax_backward(grad, y, scale=1.0),
        peers={
            "eager": lambda grad, y: ATEN._softmax_backward_data(grad, y, -1, y.dtype),
            "quack": QUACK_SOFTMAX,
        },
        bytes_moved=nbytes(dtype, shape, shape, shape),
        way="gradient",
    )


QUICK = SHAPES[1:4:2]
NORMS = tuple(
    Operator(name, partial(_norm_case, name), SHAPES, QUICK) for name in ("rms_norm", "layer_norm")
)
SOFTMAX = Operator("softmax", _softmax_case, SHAPES, QUICK)
