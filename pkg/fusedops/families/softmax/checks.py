"""What softmax demands, in the native library's order and words."""

from torch import Tensor

from fusedops import checks, masks


def softmax(
    scores: Tensor,
    mask: Tensor | None = None,
    alibi: Tensor | None = None,
    *,
    causal: bool = False,  # noqa: ARG001
    window: int = 0,
    scale: float = 1.0,  # noqa: ARG001
    head_offset: int = 0,
    mp_size: int = 1,
) -> None:
    """Scores [B, H, Sq, L], a mask that broadcasts to them, and an alibi of all ranks' heads."""
    op = "softmax"
    checks.check_floating(op, "scores", scores)
    if scores.dim() != 4:
        checks.fail(op, "scores", "shape [B, H, Sq, L]", list(scores.shape))
    masks.check_window(op, window)
    if mp_size < 1:
        checks.fail(op, "mp_size", "1 or more", mp_size)
    others = (mp_size - 1) * scores.shape[1]
    if not 0 <= head_offset <= others:
        checks.fail(op, "head_offset", f"0 to {others} (the heads of the other ranks)", head_offset)
    if mask is not None:
        batch, heads, queries, keys = scores.shape
        masks.check_mask(op, mask, "scores", scores, (batch, heads, queries, keys))
    if alibi is not None:
        _alibi(op, alibi, scores, mp_size)


def softmax_backward(grad: Tensor, y: Tensor, *, scale: float = 1.0) -> None:  # noqa: ARG001
    """Rows, and a result like them."""
    op = "softmax_backward"
    checks.check_rows(op, "grad", grad)
    checks.check_alike(op, "y", y, "grad", grad)


def _alibi(op: str, alibi: Tensor, scores: Tensor, mp_size: int) -> None:
    masks.check_added(op, "alibi", alibi, "scores", scores)
    heads, keys = mp_size * scores.shape[1], scores.shape[3]
    if alibi.shape not in ((heads,), (heads, keys)):
        checks.fail(op, "alibi", f"shape {[heads]} or {[heads, keys]}", list(alibi.shape))
