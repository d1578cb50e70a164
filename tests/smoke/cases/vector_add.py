"""gamma a + b."""

import fusedops
from cases.case import Case, matrices

CASES = (
    Case(
        "vector_add",
        fusedops.vector_add,
        lambda a, b: -1.75 * a + b,
        matrices(2),
        {"gamma": -1.75},
        most=1e4,
    ),
)
