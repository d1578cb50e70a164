"""The family's operators."""

from fusedops.batching import by_rows
from fusedops.families.vector_add import checks, reference
from fusedops.families.vector_add.gradients import VECTOR_ADD
from fusedops.op import Op
from fusedops.results import like_first

OPS = (
    Op(
        "vector_add",
        "vector_add",
        "(Tensor a, Tensor b, *, float gamma=1.0) -> Tensor",
        checks.vector_add,
        reference.vector_add,
        like_first,
        VECTOR_ADD,
        by_rows("a", "b"),
    ),
)
