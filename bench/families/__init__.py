"""What is timed: a file a family."""

from collections.abc import Mapping

from kernelbench.case import Family

from families import (
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

FAMILIES: Mapping[str, Family] = {
    module.FAMILY.name: module.FAMILY
    for module in (
        vector_add,
        bias_act,
        gated,
        residual,
        rotary,
        norm,
        softmax,
        attention,
        gemm,
        dequantize,
        layout,
    )
}
