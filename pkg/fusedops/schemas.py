"""The operators, each once: what torch, the native library, the tests and the docs go by."""

from fusedops.families.attention import table as attention
from fusedops.families.bias_act import table as bias_act
from fusedops.families.dequantize import table as dequantize
from fusedops.families.gated import table as gated
from fusedops.families.gemm import table as gemm
from fusedops.families.layout import table as layout
from fusedops.families.norm import table as norm
from fusedops.families.residual import table as residual
from fusedops.families.rotary import table as rotary
from fusedops.families.softmax import table as softmax
from fusedops.families.vector_add import table as vector_add
from fusedops.op import Op

NAMESPACE = "fusedops"

OPS: tuple[Op, ...] = (
    *vector_add.OPS,
    *bias_act.OPS,
    *gated.OPS,
    *residual.OPS,
    *norm.OPS,
    *rotary.OPS,
    *layout.OPS,
    *dequantize.OPS,
    *attention.OPS,
    *softmax.OPS,
    *gemm.OPS,
)


def families() -> dict[str, list[str]]:
    """Names of the operators with a native kernel, by family."""
    found: dict[str, list[str]] = {}
    for op in OPS:
        if op.native:
            found.setdefault(op.family, []).append(op.name)
    return found
