"""Attention over a workspace's cache: prompts, decode steps, masks, graphs, streams."""

import math
import random

import pytest
import torch
from cases.attention import exact, heads_of
from exact import fell_back
from torch import Tensor

import fusedops

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
NORM = {
    torch.float32: 3e-6,
    torch.float16: 3e-3,
    torch.bfloat16: 2e-2,
}  # relative error of a result
by_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype).split(".")[1])


@pytest.fixture(autouse=True)
def no_gradients():
    random.seed(torch.initial_seed())
    with torch.no_grad():
        yield


def make_workspace(dtype, device, *, batch=2, heads=4, kv_heads=2, dim=32, layers=1, tokens=40):
    """A workspace whose memory is poisoned, as far as it may hold anything."""
    workspace = fusedops.Workspace(
        heads * dim, heads, kv_heads, layers, batch, tokens, dtype, device
    )
    memory = workspace.memory
    for cache in (*memory.keys, *memory.values, memory.context, memory.partials):
        cache[..., :dim] = math.nan
    return workspace


def tokens_of(workspace, batch, tokens, spread=1.0):
    sizes = workspace.sizes
    width = (sizes.heads + 2 * sizes.kv_heads) * sizes.head_dim
    wide = torch.randn(batch, tokens, width, dtype=torch.float64) * spread
    return wide.to(sizes.dtype).to(workspace.device)


def tokens_without_ties(workspace, *sizes, spread):
    """Tokens whose results do not depend on the rounding of great scores.

    Where the two greatest scores of a row nearly tie, that rounding decides how the row is shared.
    """
    while True:
        qkv = tokens_of(workspace, *sizes, spread=spread).double()
        expected = truth(workspace, qkv)
        nudged = truth(workspace, qkv * (1 + 2**-18 * torch.randn_like(qkv)))
        if (nudged - expected).norm() < 2**-16 * expected.norm():
            return qkv.to(workspace.sizes.dtype)


def call(workspace, qkv, *args, layer_id=0, **how):
    return fusedops.softmax_context(
        qkv, *args, workspace=workspace, layer_id=layer_id, heads=workspace.sizes.heads, **how
    )


def truth(workspace, qkv, **how):
    sizes = workspace.sizes
    return exact(qkv, sizes.heads, sizes.kv_heads, sizes.dtype, **how)


def close(actual: Tensor, expected: Tensor, dtype):
    assert actual.dtype == dtype
    assert actual.shape == expected.shape
    bound = NORM[dtype] * (2 if fell_back() else 1)
    scale = expected.norm().item() + 1e-3 * expected.numel() ** 0.5
    error = (actual.double() - expected).norm().item() / scale
    assert error < bound


def steps(workspace, qkv, prompt, *, mask=None, **how):
    """A prompt and steps over qkv [B, L, ...]; each result against the truth over all of it."""
    expected = truth(workspace, qkv, mask=mask, **how)
    begins = [0, *range(prompt, qkv.shape[1])] if prompt else list(range(qkv.shape[1]))
    ends = [*begins[1:], qkv.shape[1]]
    for begin, end in zip(begins, ends, strict=True):
        some = mask
        if mask is not None and mask.dim() > 2 and mask.shape[-2] > 1:
            some = mask[..., begin:end, :]
        if some is not None and end - begin > 1:
            some = some[..., :end]
        alibi = how.get("alibi")
        others = {name: value for name, value in how.items() if name != "alibi"}
        actual = call(workspace, qkv[:, begin:end], some, alibi, **others)
        close(actual, expected[:, begin:end], workspace.sizes.dtype)
        assert workspace.tokens == end
        assert workspace.positions[: qkv.shape[0]].tolist() == [end] * qkv.shape[0]


SHAPES = (
    {"heads": 4, "kv_heads": 4, "dim": 64},
    {"heads": 8, "kv_heads": 2, "dim": 128},
    {"heads": 8, "kv_heads": 1, "dim": 80},
    {"heads": 6, "kv_heads": 2, "dim": 33},
    {"heads": 20, "kv_heads": 2, "dim": 48},
    {"heads": 3, "kv_heads": 3, "dim": 256},
    {"heads": 2, "kv_heads": 1, "dim": 5},
)


@by_dtype
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "-".join(map(str, shape.values())))
def test_a_prompt_and_steps(dtype, shape, anywhere):
    for prompt in (0, random.randint(2, 30)):
        workspace = make_workspace(dtype, anywhere, batch=3, **shape)
        qkv = tokens_of(workspace, random.choice([1, 3]), prompt + 5)
        dim = shape["dim"]
        steps(
            workspace,
            qkv,
            prompt,
            rotary_dim=random.choice([0, dim // 2 * 2, dim // 4 * 2]),
            rotary_style=random.choice(["half", "interleaved"]),
            theta=random.choice([1e4, 5e5]),
            window=random.choice([0, 0, 1, 4, 100]),
            scale=random.choice([None, 0.3]) or dim**-0.5,
            alibi=random.choice([None, torch.rand(shape["heads"], device=anywhere)]),
        )


def additive(keep, dtype):
    noise = torch.randn(keep.shape, device=keep.device).to(dtype)
    return noise.masked_fill(~keep, -math.inf)


@by_dtype
@pytest.mark.parametrize("kind", ["boolean", "additive", "float32"])
@pytest.mark.parametrize(
    "family", ["padding", "padding of one", "per query", "per head", "broadcast", "no query"]
)
def test_masks_of_both_families(dtype, kind, family, anywhere):
    workspace = make_workspace(dtype, anywhere)
    length = 12
    shape = {
        "padding": (2, length),
        "padding of one": (1, length),
        "per query": (2, length, length),
        "per head": (2, 4, length, length),
        "broadcast": (1, 1, length, length),
        "no query": (2, 1, 1, length),
    }[family]
    mask = torch.rand(shape, device=anywhere) < 0.6
    if kind != "boolean":
        mask = additive(mask, dtype if kind == "additive" else torch.float32)
    qkv = tokens_of(workspace, 2, length)
    causal = random.choice([True, False])
    if causal:
        steps(workspace, qkv, random.choice([0, 7]), mask=mask, window=random.choice([0, 5]))
    else:
        steps_of_encoder(workspace, qkv, mask)


def steps_of_encoder(workspace, qkv, mask):
    actual = call(workspace, qkv, mask, causal=False)
    close(actual, truth(workspace, qkv, mask=mask, causal=False), workspace.sizes.dtype)


@by_dtype
def test_a_query_that_keeps_nothing_gives_zeros(dtype, anywhere):
    workspace = make_workspace(dtype, anywhere)
    qkv = tokens_of(workspace, 2, 9)
    mask = torch.ones(2, 9, dtype=torch.bool, device=anywhere)
    mask[1] = False
    steps(workspace, qkv, 6, mask=mask)
    lowest = torch.zeros(2, 10, device=anywhere).masked_fill(
        ~torch.tensor([[True], [False]], device=anywhere), torch.finfo(torch.float32).min
    )
    more = tokens_of(workspace, 2, 1)
    actual = call(workspace, more, lowest).clone()
    assert torch.equal(actual[0], call_again(workspace, more)[0])
    # Of a row where all have the lowest number, each has the same share.
    values = heads_of(torch.cat([qkv, more], 1), 4, 2)[2][1].mean(0).repeat_interleave(2, 0)
    close(actual[1:], values.flatten()[None, None], dtype)


def call_again(workspace, token):
    workspace.positions.sub_(1)
    workspace.restart(workspace.tokens - 1)
    return call(workspace, token)


@by_dtype
def test_great_magnitudes(dtype, anywhere):
    workspace = make_workspace(dtype, anywhere)
    qkv = tokens_without_ties(workspace, 2, 10, spread=100.0)
    expected = truth(workspace, qkv)
    call(workspace, qkv[:, :9])
    close(call(workspace, qkv[:, 9:]), expected[:, 9:], dtype)


def test_infinities_in_values_and_masks(anywhere):
    workspace = make_workspace(torch.float32, anywhere, batch=1, heads=1, kv_heads=1, dim=8)
    qkv = tokens_of(workspace, 1, 4)
    qkv[0, 1, 16] = math.inf
    qkv[0, 2, 17] = math.nan
    call(workspace, qkv[:, :3])
    actual = call(workspace, qkv[:, 3:])[0, 0]
    assert actual[0] == math.inf
    assert actual[1].isnan()
    assert actual[2:].isfinite().all()
    mask = torch.tensor([[0.0, math.inf, 0.0, 0.0]], device=anywhere)
    assert call_again_with(workspace, qkv[:, 3:], mask).isnan().all()


def call_again_with(workspace, token, mask):
    workspace.positions.sub_(1)
    workspace.restart(workspace.tokens - 1)
    return call(workspace, token, mask)


@by_dtype
@pytest.mark.parametrize("group", [1, 3, 4, 8, 17])
def test_long_caches(dtype, group, gpu):
    """Enough keys for every block to have some, not a whole number of its tiles."""
    step_after(random.randint(5000, 9000), group, dtype, gpu, random.choice([64, 96, 128, 256]))


@by_dtype
@pytest.mark.parametrize("group", [1, 3, 8, 17])
def test_caches_that_a_few_blocks_share(dtype, group, anywhere):
    step_after(random.randint(35, 1000), group, dtype, anywhere, random.choice([20, 64, 128]))


def step_after(tokens, group, dtype, device, dim):
    """One step after so many tokens, twice."""
    length = tokens + 1
    batch = random.choice([1, 5])
    workspace = make_workspace(
        dtype, device, batch=batch, heads=2 * group, kv_heads=2, dim=dim, tokens=length + 300
    )
    how = {
        "window": random.choice([0, length // 2, 70]),
        "alibi": random.choice([None, torch.rand(2 * group, device=device) * 0.01]),
        "mask": random.choice([None, torch.rand(batch, length, device=device) < 0.8]),
    }
    qkv = tokens_of(workspace, batch, length)
    q, k, v = heads_of(qkv, 2 * group, 2)
    memory = workspace.memory
    for cache, new in ((memory.keys[0], k), (memory.values[0], v)):
        cache[:, :, : length - 1, :dim] = new[:, :-1].transpose(1, 2).to(dtype)
    memory.positions.fill_(length - 1)
    workspace.restart(length - 1)
    actual = call(workspace, qkv[:, -1:], how["mask"], how["alibi"], window=how["window"]).clone()
    close(actual, last_of(q, k, v, **how), dtype)
    memory.positions.fill_(length - 1)
    workspace.restart(length - 1)
    again = call(workspace, qkv[:, -1:], how["mask"], how["alibi"], window=how["window"])
    assert torch.equal(actual, again)
    assert not memory.counters.any()


def last_of(q, k, v, *, window, alibi, mask):
    group = q.shape[2] // k.shape[2]
    k, v = (one.repeat_interleave(group, 2) for one in (k, v))
    z = torch.einsum("bhd,bthd->bht", q[:, -1], k) * q.shape[-1] ** -0.5
    away = torch.arange(1 - k.shape[1], 1, device=q.device)
    if alibi is not None:
        z = z + alibi[:, None].double() * away
    dropped = away <= -window if window else torch.zeros_like(away, dtype=torch.bool)
    if mask is not None:
        dropped = dropped | ~mask[:, None]
    weights = z.masked_fill(dropped, -math.inf).softmax(-1)
    return torch.einsum("bht,bthd->bhd", weights, v).flatten(1)[:, None]


@by_dtype
def test_layers_and_models_do_not_meet(dtype, anywhere):
    """Two workspaces of two layers each, taken in turn."""
    workspaces = [make_workspace(dtype, anywhere, layers=2) for _ in range(2)]
    every = [[tokens_of(one, 2, 9) for _ in range(2)] for one in workspaces]
    expected = [
        [truth(one, qkv, rotary_dim=32) for qkv in of]
        for one, of in zip(workspaces, every, strict=True)
    ]
    for begin, end in ((0, 6), (6, 7), (7, 8), (8, 9)):
        for layer_id in range(2):
            for workspace, of, exacts in zip(workspaces, every, expected, strict=True):
                qkv = of[layer_id][:, begin:end]
                actual = call(workspace, qkv, layer_id=layer_id, rotary_dim=32)
                close(actual, exacts[layer_id][:, begin:end], dtype)
                assert workspace.tokens == (end if layer_id else begin)


def test_fewer_sequences_than_the_workspace_holds(anywhere):
    workspace = make_workspace(torch.float32, anywhere, batch=5)
    steps(workspace, tokens_of(workspace, 2, 8), 5, rotary_dim=32)
    assert workspace.positions.tolist() == [8, 8, 0, 0, 0]


def test_sequences_at_different_positions(anywhere):
    """The kernel goes by each sequence's own position."""
    workspace = make_workspace(torch.float32, anywhere, batch=2)
    qkv = tokens_of(workspace, 2, 10)
    memory = workspace.memory
    _, k, v = heads_of(qkv, 4, 2)
    for cache, new in ((memory.keys[0], k), (memory.values[0], v)):
        cache[0, :, :9] = new[0, :9].transpose(0, 1)
        cache[1, :, :3] = new[1, :3].transpose(0, 1)
    memory.positions.copy_(torch.tensor([9, 3]))
    actual = call(workspace, torch.stack([qkv[0, 9:], qkv[1, 3:4]]))
    expected = truth(workspace, qkv)
    close(actual, torch.stack([expected[0, 9:], expected[1, 3:4]]), torch.float32)
    assert workspace.positions.tolist() == [10, 4]


def test_strided_and_unaligned_tokens(anywhere):
    workspace = make_workspace(torch.float16, anywhere)
    qkv = tokens_of(workspace, 2, 9)
    expected = truth(workspace, qkv)
    wide = torch.stack([qkv, -qkv], -1)
    shifted = torch.cat([qkv.flatten()[:1], qkv[:, 8:].flatten()])[1:].view(2, 1, -1)
    close(call(workspace, wide[:, :7, :, 0]), expected[:, :7], torch.float16)
    close(call(workspace, wide[:, 7:8, :, 0]), expected[:, 7:8], torch.float16)
    close(call(workspace, shifted), expected[:, 8:], torch.float16)


@pytest.mark.parametrize("shape", [(0, 1), (2, 0), (0, 0)])
def test_nothing_to_do(shape, anywhere):
    workspace = make_workspace(torch.float32, anywhere)
    actual = call(workspace, tokens_of(workspace, *shape))
    assert actual.shape == (*shape, 128)
    assert workspace.tokens == 0


def test_too_many_tokens(anywhere):
    workspace = make_workspace(torch.float32, anywhere, tokens=6)
    says = r"softmax_context: qkv: expected at most 6 tokens \(what fits into the .*\), found 7"
    with pytest.raises(ValueError, match=says):
        call(workspace, tokens_of(workspace, 2, 7))
    call(workspace, tokens_of(workspace, 2, 5))
    call(workspace, tokens_of(workspace, 2, 1))
    before = workspace.memory.keys[0].clone()
    says = r"softmax_context: qkv: expected at most 0 tokens \(.* beside the 6 .*\), found 1"
    with pytest.raises(ValueError, match=says):
        call(workspace, tokens_of(workspace, 2, 1))
    # Where the host does not know, the device does.
    workspace.restart(0)
    assert call(workspace, tokens_of(workspace, 2, 1)).isnan().all()
    assert torch.equal(workspace.memory.keys[0], before)
    assert workspace.positions.tolist() == [6, 6]
    workspace.reset()
    call(workspace, tokens_of(workspace, 2, 5))


WRONG = {
    "heads": (lambda w, q: call(w, q, kv_heads=3), "heads: expected a multiple of 3"),
    "kv_heads": (
        lambda w, q: call(w, q[..., :192], kv_heads=1),
        r"kv_heads: expected 2 \(the workspace's\), found 1",
    ),
    "width": (
        lambda w, q: call(w, q[..., :-1]),
        r"qkv: expected shape \[B, S, a multiple of 8\] .*found \[2, 1, 255\]",
    ),
    "head": (
        lambda w, q: call(w, q[..., :128]),
        r"qkv: expected heads of 32 \(the workspace's\), found 16",
    ),
    "dtype": (
        lambda w, q: call(w, q.double()),
        "qkv: expected dtype float32, float16 or bfloat16, found float64",
    ),
    "another dtype": (
        lambda w, q: call(w, q.half()),
        r"qkv: expected dtype float32 \(that of the workspace\), found float16",
    ),
    "layer": (lambda w, q: call(w, q, layer_id=1), "layer_id: expected 0 to 0, found 1"),
    "batch": (
        lambda w, q: call(w, torch.cat([q, q])),
        "qkv: expected at most 2 sequences, found 4",
    ),
    "style": (
        lambda w, q: call(w, q, rotary_style="other"),
        "rotary_style: expected 'half' or 'interleaved', found 'other'",
    ),
    "rotary": (
        lambda w, q: call(w, q, rotary_dim=33),
        "rotary_dim: expected an even number up to 32",
    ),
    "theta": (lambda w, q: call(w, q, theta=-1.0), "theta: expected a positive finite number"),
    "window": (lambda w, q: call(w, q, window=-1), r"window: expected 0 \(all keys\) or more"),
    "mask's shape": (
        lambda w, q: call(w, q, torch.ones(3, 1, device=q.device)),
        r"mask: expected shape \[2, L\], \[2, 1, L\] or \[2, 4, 1, L\].* found \[3, 1\]",
    ),
    "mask's dtype": (
        lambda w, q: call(w, q, torch.ones(2, 1, device=q.device).long()),
        "mask: expected dtype bool or float32 .*, found int64",
    ),
    "alibi": (
        lambda w, q: call(w, q, None, torch.ones(3, device=q.device)),
        r"alibi: expected shape \[4\] \(a slope a head\), found \[3\]",
    ),
    "tokens of one type": (
        lambda w, q: fusedops.softmax_context_fp16(q, workspace=w, layer_id=0, heads=4),
        "qkv: expected dtype float16, found float32",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments(name, anywhere):
    wrong, message = WRONG[name]
    workspace = make_workspace(torch.float32, anywhere)
    with pytest.raises(ValueError, match=rf"softmax_context\w*: .*{message}"):
        wrong(workspace, tokens_of(workspace, 2, 1))
    assert workspace.tokens == 0


def test_a_mask_that_is_too_short(anywhere):
    workspace = make_workspace(torch.float32, anywhere)
    call(workspace, tokens_of(workspace, 2, 5))
    for keys in (5, 2):
        with pytest.raises(ValueError, match=f"mask: expected .* at least 6 .*, found {keys}"):
            call(workspace, tokens_of(workspace, 2, 1), torch.zeros(2, keys, device=anywhere))
    call(workspace, tokens_of(workspace, 2, 1), torch.zeros(2, 9, device=anywhere))


@pytest.mark.parametrize("tokens", [1, 4])
def test_gradients_are_refused(tokens, anywhere):
    workspace = make_workspace(torch.float32, anywhere)
    qkv = tokens_of(workspace, 2, tokens).requires_grad_()
    with (
        torch.enable_grad(),
        pytest.raises(RuntimeError, match="softmax_context: writes to a KV cache, so it has no"),
    ):
        call(workspace, qkv)
    call(workspace, qkv)


def test_the_operator_refuses_gradients_too(anywhere):
    workspace = make_workspace(torch.float32, anywhere)
    memory = workspace.memory
    state = (memory.positions, memory.counters, memory.partials, memory.context)
    qkv = tokens_of(workspace, 2, 1).requires_grad_()
    with torch.enable_grad(), pytest.raises(RuntimeError, match="so it has no gradient"):
        torch.ops.fusedops.softmax_context_step(
            qkv, None, None, memory.keys[0], memory.values[0], *state, heads=4, kv_heads=2, scale=1
        )


def test_typed_entry_points(anywhere):
    for dtype, suffix in zip(DTYPES, ("fp32", "fp16", "bf16"), strict=True):
        one, other = (make_workspace(dtype, anywhere) for _ in range(2))
        qkv = tokens_of(one, 2, 3)
        typed = getattr(fusedops, f"softmax_context_{suffix}")
        for part in (qkv[:, :2], qkv[:, 2:]):
            actual = typed(part, workspace=one, layer_id=0, heads=4)
            assert torch.equal(actual, call(other, part))


@pytest.mark.parametrize(
    "dtype",
    [DTYPES[0], *(pytest.param(dtype, marks=pytest.mark.nightly) for dtype in DTYPES[1:])],
    ids=str,
)
@pytest.mark.parametrize("gradients", [False, True])
def test_compiles_in_one_graph(dtype, gradients, anywhere):
    """Also where gradients are recorded, but none is asked for."""
    torch._dynamo.reset()  # each dtype is a compilation, and there is a limit
    compiled = torch.compile(
        lambda workspace, qkv: call(workspace, qkv * 2, rotary_dim=32) + 1,
        fullgraph=True,
        backend="aot_eager",
    )
    workspace = make_workspace(dtype, anywhere)
    qkv = tokens_of(workspace, 2, 9)
    expected = truth(workspace, qkv * 2, rotary_dim=32) + 1
    for begin, end in ((0, 6), (6, 7), (7, 8), (8, 9)):
        with (
            torch.set_grad_enabled(gradients),
            torch._dynamo.config.patch(error_on_recompile=begin > 6),
        ):
            close(compiled(workspace, qkv[:, begin:end]), expected[:, begin:end], dtype)
    assert workspace.positions.tolist() == [9, 9]


def test_inference_mode(anywhere):
    with torch.inference_mode():
        workspace = make_workspace(torch.float32, anywhere)
        qkv = tokens_of(workspace, 2, 5)
        steps(workspace, qkv, 3)
    call(workspace, qkv[:, :2].clone())
    workspace.reset()


def test_a_graph_of_a_step_goes_on_at_each_replay(gpu):
    for dtype in DTYPES:
        workspace = make_workspace(
            dtype, gpu, batch=2, heads=8, kv_heads=2, dim=64, layers=2, tokens=400
        )
        qkv = [tokens_of(workspace, 2, 300) for _ in range(2)]
        expected = [truth(workspace, one, rotary_dim=64) for one in qkv]
        for layer_id in range(2):
            call(workspace, qkv[layer_id][:, :250], layer_id=layer_id, rotary_dim=64)
        token = [torch.empty_like(one[:, :1]) for one in qkv]
        results = [torch.empty_like(one[:, :1, : 8 * 64]) for one in qkv]
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            for layer_id in range(2):
                actual = call(workspace, token[layer_id], layer_id=layer_id, rotary_dim=64)
                results[layer_id].copy_(actual)
        assert workspace.tokens == 250
        for at in range(250, 300):
            for layer_id in range(2):
                token[layer_id].copy_(qkv[layer_id][:, at : at + 1])
            workspace.count(1)
            graph.replay()
            for layer_id in range(2):
                close(results[layer_id], expected[layer_id][:, at : at + 1], dtype)
        assert workspace.tokens == 300
        assert workspace.positions.tolist() == [300, 300]


def test_a_graph_does_not_write_past_the_end(gpu):
    workspace = make_workspace(torch.bfloat16, gpu, tokens=20)
    call(workspace, tokens_of(workspace, 2, 18))
    token = tokens_of(workspace, 2, 1)
    call(workspace, token)
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        actual = call(workspace, token)
    graph.replay()
    assert actual.isfinite().all()
    before = [one.clone() for one in (*workspace.memory.keys, *workspace.memory.values)]
    graph.replay()
    assert actual.isnan().all()
    after = (*workspace.memory.keys, *workspace.memory.values)
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
    assert workspace.positions.tolist() == [20, 20]


def test_two_streams(gpu):
    """A workspace each, the same steps at the same time."""
    workspaces = [
        make_workspace(torch.float16, gpu, heads=8, tokens=2000, dim=64) for _ in range(2)
    ]
    every = [tokens_of(one, 2, 60) for one in workspaces]
    expected = [truth(one, qkv) for one, qkv in zip(workspaces, every, strict=True)]
    streams = [torch.cuda.Stream() for _ in workspaces]
    results = [[], []]
    torch.cuda.synchronize()
    for begin, end in ((0, 30), *((at, at + 1) for at in range(30, 60))):
        for at, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                torch.cuda._sleep(random.randint(0, 200_000))
                actual = call(workspaces[at], every[at][:, begin:end])
                results[at].append(actual.clone())
    torch.cuda.synchronize()
    for actual, exacts in zip(results, expected, strict=True):
        close(torch.cat(actual, 1), exacts, torch.float16)


def test_runs_on_the_current_stream(gpu):
    workspace = make_workspace(torch.float16, gpu)
    qkv = tokens_of(workspace, 2, 9)
    expected = truth(workspace, qkv * 2)
    call(workspace, qkv[:, :8] * 2)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        actual = call(workspace, qkv[:, 8:] * 2)
    stream.synchronize()
    close(actual, expected[:, 8:], torch.float16)


def test_two_gpus(gpu, other_gpu):
    workspace = make_workspace(torch.float16, other_gpu)
    steps(workspace, tokens_of(workspace, 2, 8), 5)
    with pytest.raises(ValueError, match=f"qkv: expected device {other_gpu} .* found {gpu}"):
        call(workspace, tokens_of(workspace, 2, 1).to(gpu))
