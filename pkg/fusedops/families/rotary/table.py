"""The family's operators."""

from torch import Tensor

from fusedops.batching import by_rows
from fusedops.families.rotary import checks, gradients, reference
from fusedops.op import Op
from fusedops.results import no_result

_FAMILY = "rotary"
_HOW = (
    'Tensor? positions=None, *, int rotary_dim, SymInt offset=0, str style="half", '
    "float theta=10000.0"
)


def _like_heads(q: Tensor, k: Tensor, *_: object, **__: object) -> tuple[Tensor, Tensor]:
    return q.new_empty(q.shape), k.new_empty(k.shape)


OPS = (
    Op(
        "apply_rotary_pos_emb",
        _FAMILY,
        f"(Tensor q, Tensor k, {_HOW}) -> (Tensor, Tensor)",
        checks.apply_rotary_pos_emb,
        reference.apply_rotary_pos_emb,
        _like_heads,
        gradients.ROTARY,
        by_rows(),
    ),
    Op(
        "apply_rotary_pos_emb_",
        _FAMILY,
        f"(Tensor(a!) q, Tensor(b!) k, {_HOW}) -> ()",
        checks.apply_rotary_pos_emb_,
        reference.apply_rotary_pos_emb_,
        no_result,
        public=False,
    ),
    Op(
        "apply_rotary_pos_emb_backward",
        _FAMILY,
        f"(Tensor grad_q, Tensor grad_k, {_HOW}) -> (Tensor, Tensor)",
        checks.apply_rotary_pos_emb_backward,
        reference.apply_rotary_pos_emb_backward,
        _like_heads,
        gradients.ROTARY_BACKWARD,
        public=False,
    ),
)
