"""The operators, each once: what torch, the native library, the tests and the docs go by."""

from fusedops.families.bias_act import table as bias_act
from fusedops.families.vector_add import table as vector_add
from fusedops.op import Op

NAMESPACE = "fusedops"

OPS: tuple[Op, ...] = (
    *vector_add.OPS,
    *bias_act.OPS,
)


def families() -> dict[str, list[str]]:
    """Names of the operators with a native kernel, by family."""
    found: dict[str, list[str]] = {}
    for op in OPS:
        if op.native:
            found.setdefault(op.family, []).append(op.name)
    return found
