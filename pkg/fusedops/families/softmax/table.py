"""The family's operators."""

from fusedops.autograd import ONCE
from fusedops.batching import by_rows
from fusedops.families.softmax import checks, reference
from fusedops.families.softmax.gradients import SOFTMAX
from fusedops.op import Op
from fusedops.results import like_first

_FAMILY = "softmax"

OPS = (
    Op(
        "softmax",
        _FAMILY,
        "(Tensor scores, Tensor? mask=None, Tensor? alibi=None, *, bool causal=False, "
        "int window=0, float scale=1.0, int head_offset=0, int mp_size=1) -> Tensor",
        checks.softmax,
        reference.softmax,
        like_first,
        SOFTMAX,
        by_rows(),
    ),
    Op(
        "softmax_backward",
        _FAMILY,
        "(Tensor grad, Tensor y, *, float scale=1.0) -> Tensor",
        checks.softmax_backward,
        reference.softmax_backward,
        like_first,
        ONCE,
        public=False,
    ),
)
