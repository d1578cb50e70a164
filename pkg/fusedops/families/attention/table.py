"""The family's operator: what `softmax_context` calls for a decode step."""

from fusedops.families.attention import checks, reference
from fusedops.op import Op
from fusedops.results import no_result

OPS = (
    Op(
        "softmax_context_step",
        "attention",
        "(Tensor qkv, Tensor? mask, Tensor? alibi, Tensor(a!) keys, Tensor(b!) values, "
        "Tensor(c!) positions, Tensor(d!) counters, Tensor(e!) partials, Tensor(f!) out, *, "
        'int heads, int kv_heads, float scale, int rotary_dim=0, str rotary_style="half", '
        "float theta=10000.0, int window=0, bool advance=False) -> ()",
        checks.softmax_context_step,
        reference.softmax_context_step,
        no_result,
        public=False,
    ),
)
