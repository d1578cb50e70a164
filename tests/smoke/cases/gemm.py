"""Products with weights."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import fusedops
from cases.bias_act import gelu
from cases.case import Case, Shape, randn

# Of results. Few rows and many, odd and even, and rows by the hundred thousand. No few elements:
# their own size says nothing of the terms they are sums of.
SMALL: tuple[Shape, ...] = ((41,), (5, 3, 129))
SHAPES: tuple[Shape, ...] = (
    (40, 1),
    (4096,),
    (1, 1, 1000),
    (16, 264),
    (17, 264),
    (33, 1001),
    (300, 2048),
    (2, 3, 5, 7, 12),
    (140_001, 24),
)
BACKWARD: tuple[Shape, ...] = ((2, 1), (4099, 3), (33, 1001), (300, 1024))

Activation = Callable[[Tensor], Tensor]


def halves(gate: Activation) -> Activation:
    """v1 gate(v2) of the halves of a row."""
    return lambda v: v.chunk(2, -1)[0] * gate(v.chunk(2, -1)[1])


ACTIVATIONS: dict[str, Activation] = {
    "gelu": lambda v: gelu(v, "tanh"),
    "gelu_erf": lambda v: gelu(v, "none"),
    "relu": torch.relu,
    "geglu": halves(lambda v: gelu(v, "tanh")),
    "geglu_erf": halves(lambda v: gelu(v, "none")),
    "swiglu": halves(lambda v: v * torch.sigmoid(v)),
    "reglu": halves(torch.relu),
}


def layer_norm(s: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
    centered = s - s.mean(-1, keepdim=True)
    return centered / (centered.square().mean(-1, keepdim=True) + 1e-5).sqrt() * gamma + beta


def rms_norm(s: Tensor, gamma: Tensor) -> Tensor:
    return s / (s.square().mean(-1, keepdim=True) + 1e-6).sqrt() * gamma


def inner_of(shape: Shape) -> int:
    """What is summed over: so long and even that there is a kernel for few rows, or odd; or little,
    where gradcheck goes through it. (The deviation of three numbers may be near 0, and what they
    are normalised to has few digits then.)
    """
    if 0 < math.prod(shape) <= 15:
        return 3
    return 264 if shape[-1] % 4 == 0 else 37


Parts = dict[str, Any]
"""What an operator may take, by name, for results of a shape."""


def parts(shape: Shape, dtype: torch.dtype, device: torch.device) -> Parts:
    width = shape[-1]
    inner = inner_of(shape)
    hidden = 2 * inner

    def weight(rows: int, cols: int) -> Tensor:
        return randn((rows, cols), dtype, device, 1 / math.sqrt(rows))

    def matrix() -> Tensor:
        return randn((*shape[:-1], inner), dtype, device)

    def row(cols: int) -> Tensor:
        return randn((cols,), dtype, device)

    return {
        **{"x": matrix(), "residual": matrix(), "input_bias": row(inner)},
        **{"weight": weight(inner, width), "bias": row(width)},
        **{"up": weight(inner, hidden), "up_bias": row(hidden), "down": weight(hidden, width)},
        **{"half_down": weight(inner, width), "both": weight(inner, 2 * width)},
        "sum": randn(shape, dtype, device),
        **{"gamma": row(inner), "beta": row(inner)},
    }


def by_columns(*names: str) -> Callable[[Shape, torch.dtype, torch.device], tuple[Any, ...]]:
    """The same, of a weight (the second) with contiguous columns, as that of torch.nn.Linear."""

    def make(shape: Shape, dtype: torch.dtype, device: torch.device) -> tuple[Any, ...]:
        x, weight, *rest = of(*names)(shape, dtype, device)
        return x, weight.t().contiguous().t(), *rest

    return make


def of(*names: str) -> Callable[[Shape, torch.dtype, torch.device], tuple[Any, ...]]:
    """Arguments by name; one that ends in "8" is an int8 weight and its scales."""

    def make(shape: Shape, dtype: torch.dtype, device: torch.device) -> tuple[Any, ...]:
        have = parts(shape, dtype, device)
        arguments: list[Any] = []
        for name in names:
            if name.endswith("8"):
                dense = have[name[:-1]]
                arguments += fusedops.quantize(dense.float(), 1 if dense.shape[0] % 3 else 3)
            else:
                arguments.append(have[name])
        return tuple(arguments)

    return make


def experts(shape: Shape, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """For results [e, c, m]."""
    inner = inner_of(shape)
    return (
        randn((inner, *shape[:2]), dtype, device),
        randn((inner, shape[2]), dtype, device, 1 / math.sqrt(inner)),
    )


def mlp(u: Tensor, up: Tensor, bias: Tensor | float, down: Tensor, activation: str) -> Tensor:
    return ACTIVATIONS[activation](u @ up + bias) @ down


def mlp_gemm(activation: str, after: bool = True) -> Callable[..., tuple[Tensor, Tensor]]:
    def exact(x, residual, row, up, bias, down, gamma, beta):
        u = layer_norm(x + row + residual if after else residual, gamma, beta)
        return mlp(u, up, bias, down, activation), u

    return exact


def rms_mlp_gemm(activation: str) -> Callable[..., tuple[Tensor, Tensor]]:
    def exact(x, residual, up, down, gamma):
        return mlp(rms_norm(x + residual, gamma), up, 0.0, down, activation), x + residual

    return exact


def dense(weight: Tensor, scale: Tensor) -> Tensor:
    """An int8 weight in float64."""
    return weight.double() * scale.double().repeat_interleave(
        weight.shape[0] // scale.shape[0], 0
    ).unsqueeze(-1)


def of_int8(exact: Callable[..., Any], *weights: int) -> Callable[..., Any]:
    """The same with weights at these places, each before its scales."""

    def call(*args):
        args = list(args)
        for at in weights:
            args[at : at + 2] = [dense(args[at], args[at + 1])]
        return exact(*args)

    return call


def into_copy(function: Callable[..., Any]) -> Callable[..., Any]:
    """A call of an operator that writes to its second argument, which leaves it as it is."""

    def call(x, residual, *args, **keywords):
        product, total = function(x, residual.clone(), *args, **keywords)
        return product, total.contiguous()

    return call


def _case(name: str, exact: Callable[..., Any], inputs: Any, **more: Any) -> Case:
    function = getattr(fusedops, name.split(maxsplit=1)[0])
    in_place = name.startswith("rms_mlp")
    int8 = "int8" in name
    settings = {
        "small": SMALL,
        "large": SHAPES,
        "least": 40,
        "backward": BACKWARD,
        "rowwise": False,
        "sum_ulps": 12.0,
        # torch's own product of 264 terms is off by 36 at most on an H200, and here are two.
        "float32_ulps": 96.0,
        "gradient_ulps": 64.0,
        "kinked": name.endswith(("relu", "reglu")),
        "differentiable": not (in_place or int8),
        "vmap": not in_place,
        **({"dtypes": (torch.float32, torch.float16, torch.bfloat16)} if int8 else {}),
    }
    return Case(
        name,
        into_copy(function) if in_place else function,
        exact,
        inputs,
        **{**settings, **more},
    )


_NORM = ("x", "residual", "input_bias", "up", "up_bias", "down", "gamma", "beta")
_GATED = ("x", "residual", "input_bias", "up", "up_bias", "half_down", "gamma", "beta")
_RMS = ("x", "residual", "up", "half_down", "gamma")


def _qkv(x, weight, bias, gamma, beta):
    u = layer_norm(x, gamma, beta)
    return u @ weight + bias, u


def _rms_qkv(x, weight, gamma):
    u = rms_norm(x, gamma)
    return u @ weight, u


def _gemm_gelu(x, up, bias, down):
    return mlp(x, up, bias, down, "gelu")


def _decode(activation: str) -> Callable[..., Tensor]:
    def exact(x, weight, gamma=None, residual=None):
        v = (x if gamma is None else rms_norm(x, gamma)) @ weight
        if residual is not None:
            return residual + v
        return v if activation == "none" else ACTIVATIONS[activation](v)

    return exact


# What follows the product, and what goes in beside x.
_DECODE: dict[str, tuple[str, ...]] = {
    "bare": ("weight",),
    "sum": ("weight", "gamma", "sum"),
    "swiglu": ("both", "gamma"),
    "gelu": ("weight", "gamma"),
}


def _decode_case(form: str) -> Case:
    activation = form if form in ACTIVATIONS else "none"
    return _case(
        f"decode_gemm {form}",
        _decode(activation),
        by_columns("x", *_DECODE[form]),
        keywords={"activation": activation, "constant": form != "bare"},
        differentiable=False,
        large=((8, 40), (1, 4096), (3, 264), (7, 1001), (17, 264), (300, 2048)),
        sum_ulps=24.0,  # values and gates are rounded before they are multiplied
    )


FLOATING = (
    _case("vector_matmul", torch.matmul, of("x", "weight")),
    _case("linear_layer", lambda x, w, b: x @ w + b, of("x", "weight", "bias")),
    _case("linear_layer bare", torch.matmul, of("x", "weight")),
    _case("fused_gemm_gelu", _gemm_gelu, of("x", "up", "up_bias", "down")),
    _case(
        "einsum_sec_sm_ecm",
        lambda q, w: torch.einsum("sec,sm->ecm", q, w),
        experts,
        small=((5, 3, 129), (1, 1, 7)),
        empty=((0, 3, 4), (3, 0, 4), (3, 4, 0)),
        large=((1, 1, 1), (4, 3, 1000), (2, 150, 264)),
        backward=((2, 1, 3), (4, 33, 1001), (2, 150, 264)),
        strided=(2, 17, 264),
        tiny=(2, 3, 5),
        ranks=(3,),
    ),
    _case("qkv_gemm", _qkv, of("x", "weight", "bias", "gamma", "beta")),
    _case("rms_qkv_gemm", _rms_qkv, of("x", "weight", "gamma")),
    *(
        _case(
            f"mlp_gemm {activation}",
            mlp_gemm(activation),
            of(*(_GATED if activation.endswith(("glu", "glu_erf")) else _NORM)),
            keywords={"activation": activation},
        )
        for activation in ACTIVATIONS
    ),
    _case(
        "mlp_gemm beside",
        mlp_gemm("gelu", after=False),
        of(*_NORM),
        keywords={"mlp_after_attn": False, "pre_ln": False},
        differentiable=False,  # x goes in and nothing depends on it
    ),
    *(_decode_case(form) for form in _DECODE),
    _case("rms_mlp_gemm", rms_mlp_gemm("swiglu"), of(*_RMS)),
    _case(
        "rms_mlp_gemm plain",
        rms_mlp_gemm("gelu_erf"),
        of("x", "residual", "up", "down", "gamma"),
        keywords={"activation": "gelu_erf"},
    ),
)
INT8 = (
    _case("vector_matmul_int8", of_int8(torch.matmul, 1), of("x", "weight8")),
    _case(
        "linear_layer_int8",
        of_int8(lambda x, w, b: x @ w + b, 1),
        of("x", "weight8", "bias"),
    ),
    _case(
        "fused_gemm_gelu_int8",
        of_int8(_gemm_gelu, 1, 3),
        of("x", "up8", "up_bias", "down8"),
    ),
    _case("qkv_gemm_int8", of_int8(_qkv, 1), of("x", "weight8", "bias", "gamma", "beta")),
    _case("rms_qkv_gemm_int8", of_int8(_rms_qkv, 1), of("x", "weight8", "gamma")),
    _case(
        "mlp_gemm_int8",
        of_int8(mlp_gemm("gelu"), 3, 5),
        of("x", "residual", "input_bias", "up8", "up_bias", "down8", "gamma", "beta"),
    ),
    _case(
        "rms_mlp_gemm_int8",
        of_int8(rms_mlp_gemm("swiglu"), 2, 3),
        of("x", "residual", "up8", "half_down8", "gamma"),
    ),
)
CASES: tuple[Case, ...] = (*FLOATING, *INT8)
