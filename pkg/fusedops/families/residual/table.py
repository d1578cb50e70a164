"""The family's operators."""

from fusedops.batching import by_rows
from fusedops.families.residual import checks, gradients, reference
from fusedops.op import Op
from fusedops.results import like_first

_FAMILY = "residual"

OPS = (
    Op(
        "bias_residual",
        _FAMILY,
        "(Tensor x, Tensor residual, Tensor bias) -> Tensor",
        checks.bias_residual,
        reference.bias_residual,
        like_first,
        gradients.BIAS_RESIDUAL,
        by_rows("x", "residual"),
    ),
    Op(
        "residual_add_bias",
        _FAMILY,
        "(Tensor hidden, Tensor residual, Tensor? attention, Tensor? attention_bias, "
        "Tensor final_bias, *, int mp_size=1, bool mlp_after_attn=True, bool add_bias=True, "
        "bool preln=True) -> Tensor",
        checks.residual_add_bias,
        reference.residual_add_bias,
        like_first,
        gradients.RESIDUAL_ADD_BIAS,
        by_rows("hidden", "residual", "attention"),
    ),
    Op(
        "moe_res_matmul",
        _FAMILY,
        "(Tensor residual, Tensor coef, Tensor output) -> Tensor",
        checks.moe_res_matmul,
        reference.moe_res_matmul,
        like_first,
        gradients.MOE_RES_MATMUL,
        by_rows("residual", "output"),
    ),
)
