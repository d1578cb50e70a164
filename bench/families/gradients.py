"""The gradients of norms and of softmax, as autograd asks for them."""

import torch
from kernelbench.case import Case, Operator, Shape, nbytes, normal
from kernelbench.peers import library
from torch import Tensor

EPS = 1e-5
# Rows of a block, of a few blocks, and those of norm.LONG that fit a cluster.
SHAPES: tuple[Shape, ...] = (
    *((32768, 1024), (8192, 4096), (8192, 8192), (8192, 16384)),
    *((4096, 65536), (2048, 131072), (2048, 131073), (1024, 262144)),
)
QUACK_RMS_NORM = library("quack.rmsnorm", "rmsnorm_bwd")
QUACK_LAYER_NORM = library("quack.rmsnorm", "layernorm_bwd")
QUACK_SOFTMAX = library("quack.softmax", "softmax_bwd")
ATEN = torch.ops.aten
OURS = torch.ops.fusedops


def _norm_case(op: str, shape: Shape, dtype: torch.dtype) -> Case:
    """A norm's: of x, gamma and beta. The peers are given what a forward pass keeps of the rows."""
    row, centered = shape[-1:], op == "layer_norm"
    drawn = normal(shape, shape, row, row, dtype=dtype)

    def inputs(device: torch.device) -> tuple[Tensor, ...]:
        grad, x, gamma, beta = drawn(device)
        if centered:
            deviation, mean = torch.var_mean(x, -1, correction=0, keepdim=True)
            mean = mean.float()
        else:
            deviation = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float32)
            deviation, mean = deviation.square() / row[0], deviation
        return grad, x, gamma, beta, torch.rsqrt(deviation.float() + EPS), mean

    def eager(grad: Tensor, x: Tensor, gamma: Tensor, beta: Tensor, scale: Tensor, mean: Tensor):
        if centered:
            return ATEN.native_layer_norm_backward(
                grad, x, row, mean, scale, gamma, beta, [True, True, True]
            )
        return ATEN._fused_rms_norm_backward(grad, x, row, scale, gamma, [True, True])

    def quack(grad: Tensor, x: Tensor, gamma: Tensor, _: Tensor, scale: Tensor, mean: Tensor):
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


NORMS = tuple(
    Operator(name, lambda shape, dtype, name=name: _norm_case(name, shape, dtype), SHAPES)
    for name in ("rms_norm", "layer_norm")
)
SOFTMAX = Operator("softmax", _softmax_case, SHAPES)
