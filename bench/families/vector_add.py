"""gamma a + b."""

import torch
from kernelbench.case import Case, Family, Operator, Shape, nbytes, normal

import fusedops

GAMMA = 0.5


def _vector_add(shape: Shape, dtype: torch.dtype) -> Case:
    return Case(
        "vector_add",
        shape,
        dtype,
        inputs=normal(shape, shape, dtype=dtype),
        ours=lambda a, b: fusedops.vector_add(a, b, gamma=GAMMA),
        peers={"eager": lambda a, b: torch.add(b, a, alpha=GAMMA)},
        bytes_moved=3 * nbytes(dtype, shape),
    )


FAMILY = Family("vector_add", (Operator("vector_add", _vector_add),))
