"""softmax_context: attention over a workspace's cache, of a prompt or of a further token."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch._C import _are_functorch_transforms_active as transforms_active
from torch._C._functorch import is_batchedtensor
from torch.compiler import is_compiling

from fusedops import checks
from fusedops.autograd import any_requires_grad
from fusedops.call import call_in_place, ops
from fusedops.families.attention.prompt import attend, check_prompt
from fusedops.families.attention.step import check_qkv, check_rotary, split_heads
from fusedops.families.rotary import apply_rotary_pos_emb
from fusedops.kinds import check_kind, check_workspace

if TYPE_CHECKING:
    from fusedops.workspace import Workspace

_OP = "softmax_context"


def softmax_context(
    qkv: Tensor,
    mask: Tensor | None = None,
    alibi: Tensor | None = None,
    *,
    workspace: "Workspace",
    layer_id: int,
    heads: int,
    kv_heads: int | None = None,
    scale: float | None = None,
    rotary_dim: int = 0,
    rotary_style: str = "half",
    theta: float = 10000.0,
    causal: bool = True,
    window: int = 0,
    last_layer: bool | None = None,
    mask_kind: str | None = None,
) -> Tensor:
    """Append keys and values to a layer's cache and attend to all of it.

    softmax(scale q k + alibi + mask) v, where a head of the cache is shared by heads / kv_heads
    query heads (Ainslie et al., "GQA", 2023). Queries and keys are turned first, as
    `apply_rotary_pos_emb` does.

    S > 1 is a prompt: the sequences start anew with it, and PyTorch's fused attention computes it.
    S = 1 is a decode step: each sequence's token goes to its own next position, which the kernel
    reads on the device, so that a CUDA graph of a step can be replayed; it splits the cache over
    the GPU and never writes the scores to memory (Dao et al., "Flash-Decoding", 2023). The last
    layer's call moves the positions on.

    For inference: it has no gradient, and refuses where one is asked for.

    Args:
        qkv: Shape [B, S, (heads + 2 kv_heads) D], the heads of q, then k, then v; float32, float16
            or bfloat16; D up to 256.
        mask: What is added to the scores (in float32 or the dtype of `qkv`), or, if boolean, which
            are kept. [B, L] is an encoder's padding mask, one row for every query; [B, S, L] and
            [B, heads, S, L] are a decoder's; B, heads and S may be 1. L is the number of keys: S
            for a prompt, the tokens held and the new one for a step; a step's mask may be longer.
            -inf drops a key whatever its score; a query that keeps none gives zeros. A finite mask
            drops none: where it is the same for all keys, and so low that float32 loses the scores
            beside it (-1e9, finfo.min), a query attends to all alike.
        alibi: A slope a head, [heads], [heads, 1, 1] or [1, heads, 1, 1] (float32 or the dtype of
            `qkv`): slope times (key's position - query's) is added to the scores (Press et al.,
            "Train Short, Test Long", 2021).
        workspace: Of the model; of the dtype and on the device of `qkv`.
        layer_id: Which layer's cache, from 0 on.
        heads: Query heads, as the workspace has them.
        kv_heads: Heads of keys and values; default: the workspace's.
        scale: Factor of the scores; default: 1 / sqrt(D).
        rotary_dim: How many elements of a head are rotated: even, 0 for none.
        rotary_style: "half" or "interleaved".
        theta: Base of the rotary frequencies.
        causal: A prompt's token attends to none after it.
        window: A token attends to no more keys than this, its own the last; 0 for all.
        last_layer: Whether positions move on; default: in the workspace's last layer.
        mask_kind: None, "padding" for a mask [B, L], "queries" for one [S, L], or "decoder" for one
            of three or four dimensions.

    Returns:
        [B, S, heads * D]. A step's result lies in the workspace: the next step overwrites it. If a
        step has no room (which the host cannot see in a graph's replay) it is NaN, and nothing is
        appended.

    Raises:
        ValueError: An argument is not as above, or the workspace has no room for the tokens; the
            message says how many fit.
        RuntimeError: A gradient is asked for; torch.jit.trace is tracing; vmap calls it; the
            workspace has been released.
    """
    check_kind(_OP, "qkv", qkv)
    check_workspace(_OP, workspace)
    if mask is not None:
        check_kind(_OP, "mask", mask)
    if alibi is not None:
        check_kind(_OP, "alibi", alibi)
    sizes = workspace.sizes
    kv_heads = sizes.kv_heads if kv_heads is None else kv_heads
    mask, alibi = checks.mask_of_kind(_OP, mask, mask_kind), checks.slopes(alibi)
    rotary = rotary_dim, rotary_style, theta
    is_step = qkv.dim() == 3 and qkv.shape[0] > 0 and qkv.shape[1] == 1
    # A step's operator sees all but the layer, and refuses a wrong call before it writes. So the
    # checks, which have the words, wait until it has.
    checked = is_compiling() or not is_step or not 0 <= layer_id < sizes.layers
    if checked:
        _check(workspace, qkv, layer_id, heads, kv_heads, rotary)
    _refuse_modes(qkv, mask, alibi)
    batch, tokens, _ = qkv.shape
    if batch == 0 or tokens == 0:
        return qkv.new_empty(batch, tokens, heads * sizes.head_dim)
    if scale is None:
        scale = sizes.head_dim**-0.5
    last = layer_id == sizes.layers - 1 if last_layer is None else last_layer
    memory = workspace.memory
    if tokens > 1:
        workspace.check_room(tokens, _OP, "qkv", held=0)
        check_prompt(_OP, qkv, mask, alibi, heads, window)
        q, k, v = split_heads(qkv, heads, kv_heads)
        if rotary_dim > 0:
            q, k = apply_rotary_pos_emb(
                q, k, rotary_dim=rotary_dim, style=rotary_style, theta=theta
            )
        for cache, new in ((memory.keys[layer_id], k), (memory.values[layer_id], v)):
            cache[:batch, :, :tokens, : sizes.head_dim].copy_(new.transpose(1, 2))
        if last:
            memory.positions[:batch].fill_(tokens)
            if _host_counts(qkv):
                workspace.restart(tokens)
        return attend(q, k, v, mask, alibi, scale=scale, causal=causal, window=window)
    options = {
        "heads": heads,
        "kv_heads": kv_heads,
        "scale": scale,
        "rotary_dim": rotary_dim,
        "rotary_style": rotary_style,
        "theta": theta,
        "window": window,
    }
    if checked:
        return _step(workspace, qkv, mask, alibi, layer_id, last, options)
    try:
        return _step(workspace, qkv, mask, alibi, layer_id, last, options)
    except Exception:
        _check(workspace, qkv, layer_id, heads, kv_heads, rotary)
        raise


def _step(
    workspace: "Workspace",
    qkv: Tensor,
    mask: Tensor | None,
    alibi: Tensor | None,
    layer_id: int,
    last: bool,
    options: dict[str, Any],
) -> Tensor:
    """A token of each sequence. What is wrong is refused before anything is written."""
    host_counts = _host_counts(qkv)
    if host_counts:
        workspace.check_room(1, _OP, "qkv")
        _check_mask_length(mask, workspace.tokens + 1)
    memory = workspace.memory
    out = memory.context[: qkv.shape[0]]
    call_in_place(
        *(ops.softmax_context_step, qkv, mask, alibi),
        *(memory.keys[layer_id], memory.values[layer_id]),
        *(memory.positions, memory.counters, memory.partials, out),
        **options,
        advance=last,
    )
    if last and host_counts:
        workspace.count(1)
    return out


def softmax_context_fp32(qkv: Tensor, *args: Tensor | None, **keywords: object) -> Tensor:
    """softmax_context of float32 tensors."""
    return _of_dtype(torch.float32, "fp32", qkv, *args, **keywords)


def softmax_context_fp16(qkv: Tensor, *args: Tensor | None, **keywords: object) -> Tensor:
    """softmax_context of float16 tensors."""
    return _of_dtype(torch.float16, "fp16", qkv, *args, **keywords)


def softmax_context_bf16(qkv: Tensor, *args: Tensor | None, **keywords: object) -> Tensor:
    """softmax_context of bfloat16 tensors."""
    return _of_dtype(torch.bfloat16, "bf16", qkv, *args, **keywords)


def _of_dtype(
    dtype: torch.dtype, suffix: str, qkv: Tensor, *args: Tensor | None, **keywords: object
) -> Tensor:
    check_kind(f"{_OP}_{suffix}", "qkv", qkv)
    if qkv.dtype != dtype:
        expected = f"dtype {checks.dtype_name(dtype)}"
        checks.fail(f"{_OP}_{suffix}", "qkv", expected, checks.dtype_name(qkv.dtype))
    return softmax_context(qkv, *args, **keywords)  # type: ignore[arg-type]


def _host_counts(qkv: Tensor) -> bool:
    """Whether the host sees every token: not while it traces, or captures a graph."""
    if is_compiling():
        return False
    return not (qkv.is_cuda and torch.cuda.is_current_stream_capturing())


def _refuse_modes(*tensors: Tensor | None) -> None:
    if torch._C._get_tracing_state() is not None:
        raise RuntimeError(
            f"{_OP}: a trace of torch.jit.trace does not count the workspace's tokens; use "
            "torch.compile or a CUDA graph"
        )
    if torch.is_grad_enabled() and any_requires_grad(*tensors):
        raise RuntimeError(
            f"{_OP}: writes to a KV cache, so it has no gradient; call it under torch.no_grad()"
        )
    if is_compiling() or not transforms_active():
        return
    if any(isinstance(one, Tensor) and is_batchedtensor(one) for one in tensors):
        raise RuntimeError(
            f"{_OP}: writes to a workspace's KV cache, which vmap cannot give each element; give "
            "it the batch"
        )


def _check(
    workspace: "Workspace",
    qkv: Tensor,
    layer_id: int,
    heads: int,
    kv_heads: int,
    rotary: tuple[int, str, float],
) -> None:
    """What a prompt and a step have in common."""
    head_dim = check_qkv(_OP, qkv, heads, kv_heads)
    check_rotary(_OP, head_dim, *rotary)
    sizes = workspace.sizes
    if heads != sizes.heads:
        checks.fail(_OP, "heads", f"{sizes.heads} (the workspace's)", heads)
    if kv_heads != sizes.kv_heads:
        checks.fail(_OP, "kv_heads", f"{sizes.kv_heads} (the workspace's)", kv_heads)
    if head_dim != sizes.head_dim:
        checks.fail(_OP, "qkv", f"heads of {sizes.head_dim} (the workspace's)", head_dim)
    if qkv.dtype != sizes.dtype:
        expected_dtype = f"dtype {checks.dtype_name(sizes.dtype)} (that of the workspace)"
        checks.fail(_OP, "qkv", expected_dtype, checks.dtype_name(qkv.dtype))
    if qkv.device != workspace.device:
        expected_device = f"device {workspace.device} (that of the workspace)"
        checks.fail(_OP, "qkv", expected_device, qkv.device)
    if qkv.shape[0] > sizes.max_batch:
        checks.fail(_OP, "qkv", f"at most {sizes.max_batch} sequences", qkv.shape[0])
    if not 0 <= layer_id < sizes.layers:
        checks.fail(_OP, "layer_id", f"0 to {sizes.layers - 1}", layer_id)


def _check_mask_length(mask: Tensor | None, keys: int) -> None:
    if mask is not None and mask.dim() > 0 and mask.shape[-1] != 1 and mask.shape[-1] < keys:
        expected = f"a last dimension of at least {keys} (keys)"
        checks.fail(_OP, "mask", expected, mask.shape[-1])
