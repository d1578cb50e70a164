"""Products with int8 weights in plain PyTorch: of the weights times their scales, rounded."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from fusedops.families.dequantize.reference import dequantize
from fusedops.families.gemm import reference


def _of_int8(dense: Callable[..., Any], *places: int) -> Callable[..., Any]:
    """`dense`, whose arguments at `places` are weights, for weights with their scales after them.

    The first argument has the dtype of the arithmetic.
    """

    def function(*args: Tensor, **keywords: Any) -> Any:  # noqa: ANN401 - those of `dense`
        rest = iter(args)
        found = [
            dequantize(next(rest), next(rest), dtype=args[0].dtype) if at in places else next(rest)
            for at in range(len(args) - len(places))
        ]
        return dense(*found, **keywords)

    return function


vector_matmul_int8 = _of_int8(reference.vector_matmul, 1)
linear_layer_int8 = _of_int8(reference.linear_layer, 1)
fused_gemm_gelu_int8 = _of_int8(reference.fused_gemm_gelu, 1, 3)
qkv_gemm_int8 = _of_int8(reference.qkv_gemm, 1)
rms_qkv_gemm_int8 = _of_int8(reference.rms_qkv_gemm, 1)
mlp_gemm_int8 = _of_int8(reference.mlp_gemm, 3, 5)
rms_mlp_gemm_int8 = _of_int8(reference.rms_mlp_gemm, 2, 3)
