"""What the operators must compute: a file a family."""

from cases import (
    attention,
    bias_act,
    dequantize,
    gated,
    gemm,
    layout,
    norm,
    residual,
    rotary,
    softmax,
    vector_add,
)
from cases.case import DTYPES, Case, Private

CASES: tuple[Case, ...] = (
    *vector_add.CASES,
    *bias_act.CASES,
    *gated.CASES,
    *residual.CASES,
    *norm.CASES,
    *rotary.CASES,
    *layout.CASES,
    *softmax.CASES,
    *gemm.CASES,
)
PRIVATE: dict[str, Private] = {
    **attention.PRIVATE,
    **bias_act.PRIVATE,
    **gated.PRIVATE,
    **norm.PRIVATE,
    **rotary.PRIVATE,
    **dequantize.PRIVATE,
    **softmax.PRIVATE,
}

__all__ = ["CASES", "DTYPES", "PRIVATE", "Case"]
