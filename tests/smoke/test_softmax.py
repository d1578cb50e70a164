"""softmax: masks of every kind, rows that keep nothing, special values, calls drawn at random."""

import math
import random
import re

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from cases.softmax import exact
from exact import by_dtype

import fusedops
from fusedops import softmax

INF, NAN = math.inf, math.nan
TOLERANCE = {
    torch.float32: 1e-5,
    torch.float16: 0.51 * 2**-10 + 1e-5,
    torch.bfloat16: 0.51 * 2**-7 + 1e-5,
    torch.float64: 1e-12,
}


def check(actual, truth, dtype):
    absolute = 1e-12 if dtype == torch.float64 else 2e-6
    torch.testing.assert_close(
        actual.double(), truth, rtol=TOLERANCE[dtype], atol=absolute, equal_nan=True
    )


def widened(tensor):
    return tensor.double() if tensor is not None and tensor.is_floating_point() else tensor


def drawn_mask(sizes, dtype, device):
    """Some sizes 1, some of them expanded, rows apart and off 16 bytes; numbers or booleans."""
    sizes = [1 if random.random() < 0.3 else size for size in sizes]
    gap, off = random.choice((0, 0, 3)), random.choice((0, 0, 1, 5))
    keep = torch.rand(*sizes[:-1], off + sizes[-1] + gap, device=device) < 0.8
    keep = keep[..., off : off + sizes[-1]]
    if random.random() < 0.4:
        return keep
    added = torch.randn(keep.shape, device=device).masked_fill(~keep, -INF)
    return added.to(random.choice((dtype, torch.float32)))


def drawn_alibi(heads, keys, dtype, device):
    dtype = random.choice((dtype, torch.float32))
    if random.random() < 0.5:
        return (0.3 * torch.rand(heads, device=device)).to(dtype)
    return torch.randn(heads, keys, device=device).to(dtype)


@by_dtype
def test_calls_drawn_at_random(dtype, anywhere):
    random.seed(torch.initial_seed())
    for _ in range(60 if anywhere.type == "cpu" else 400):
        batch, heads, queries = (random.choice((1, 1, 2, 3, 5, 8)) for _ in range(3))
        keys = random.choice((random.randint(1, 40), random.randint(1, 2000), 512, 1024, 1016))
        if anywhere.type == "cuda" and random.random() < 0.1:
            keys = random.randint(2000, 70_000)
        shape = (batch, heads, queries, keys)
        rank = random.choice(((0, 3), (0, 2, 3), (0, 1, 2, 3)))
        scores = (torch.randn(shape, device=anywhere) * 2).to(dtype)
        mask = drawn_mask([shape[dim] for dim in rank], dtype, anywhere)
        mask = random.choice((mask, mask, None))
        mp_size = random.choice((1, 1, 2))
        alibi = drawn_alibi(heads * mp_size, keys, dtype, anywhere)
        keywords = {
            "causal": random.random() < 0.5,
            "window": random.choice((0, 0, random.randint(1, keys + 3))),
            "scale": random.choice((1.0, 0.125, 0.7, -0.5, 0.0)),
            "head_offset": random.randint(0, heads * (mp_size - 1)),
            "mp_size": mp_size,
        }
        alibi = random.choice((alibi, None, None))
        actual = softmax(scores, mask, alibi, **keywords)
        truth = exact(scores.double(), widened(mask), widened(alibi), **keywords)
        assert actual.is_contiguous()
        check(actual, truth, dtype)


@by_dtype
def test_a_row_that_keeps_nothing_gives_zeros(dtype, anywhere):
    scores = torch.randn(2, 3, 4, 37, device=anywhere).to(dtype)
    keep = torch.ones(2, 37, dtype=torch.bool, device=anywhere)
    keep[1] = False
    for mask in (keep, torch.zeros_like(keep, dtype=dtype).masked_fill(~keep, -INF)):
        y = softmax(scores, mask)
        check(y[0], torch.softmax(scores[0].double(), -1), dtype)
        assert y[1].count_nonzero() == 0
    dropped = torch.full_like(scores, -INF)
    assert softmax(dropped).count_nonzero() == 0
    assert softmax(scores, scores.new_full((1, 1, 4, 1), -INF)).count_nonzero() == 0
    # More queries than keys: the first see none.
    y = softmax(scores.transpose(2, 3), causal=True)
    assert y[:, :, :33].count_nonzero() == 0
    assert (y[:, :, 33:].sum(-1) > 0.9).all()


@by_dtype
def test_the_largest_negative_number_is_no_infinity(dtype, anywhere):
    """Where it absorbs all scores of a row the row is even, as torch's is."""
    scores = torch.randn(1, 2, 3, 64, device=anywhere).to(dtype)
    lowest = torch.finfo(dtype).min
    if lowest < -1e30:
        y = softmax(scores, torch.full((1, 64), lowest, dtype=dtype, device=anywhere))
        check(y, torch.full_like(scores.double(), 1 / 64), dtype)
    some = torch.zeros(1, 64, dtype=dtype, device=anywhere)
    some[:, 5:] = lowest
    check(softmax(scores, some)[..., :5], torch.softmax(scores[..., :5].double(), -1), dtype)


@by_dtype
@pytest.mark.parametrize("keys", [37, 4097, 66_000])
def test_a_few_keys_far_below_zero(dtype, keys, anywhere):
    """What takes a part of a row in which nothing is kept says nothing of the row's maximum."""
    scores = (torch.randn(1, 1, 3, keys, device=anywhere) - 500).to(dtype)
    keep = torch.zeros(1, keys, dtype=torch.bool, device=anywhere)
    keep[:, keys // 2 : keys // 2 + 10] = True
    check(softmax(scores, keep), exact(scores.double(), keep), dtype)


@by_dtype
@pytest.mark.parametrize("keys", [8, 37, 1000, 4097, 66_000])
def test_nan_and_infinity(dtype, keys, anywhere):
    scores = torch.randn(1, 1, 4, keys, device=anywhere).to(dtype)
    scores[0, 0, 0, 3] = NAN
    scores[0, 0, 1, keys - 1] = INF
    scores[0, 0, 2, keys // 2] = -INF
    y = softmax(scores)
    assert y[0, 0, :2].isnan().all()
    check(y[0, 0, 2:], torch.softmax(scores[0, 0, 2:].double(), -1), dtype)
    scores[0, 0, :, :] = -INF
    scores[0, 0, 0, 1] = NAN
    assert softmax(scores)[0, 0, 0].isnan().all()
    assert softmax(scores)[0, 0, 1:].count_nonzero() == 0


@by_dtype
def test_what_is_dropped_is_not_looked_at(dtype, anywhere):
    scores = torch.randn(2, 2, 5, 70, device=anywhere).to(dtype)
    expected = softmax(scores, causal=True, window=9)
    hidden = expected == 0
    for bad in (NAN, INF, -INF):
        other = scores.masked_fill(hidden, bad)
        assert torch.equal(softmax(other, causal=True, window=9), expected)
        mask = torch.zeros_like(scores).masked_fill(hidden, bad)
        assert torch.equal(softmax(scores, mask, causal=True, window=9), expected)
        remaining = softmax(other, ~hidden)
        check(remaining, expected.double(), dtype)


def test_large_numbers(anywhere):
    for size in (1e4, 1e30, 3e38):
        scores = torch.tensor([[[[size, size * 0.99, -size, 0.0] * 5]]], device=anywhere)
        check(softmax(scores), torch.softmax(scores.double(), -1), torch.float32)
    scores = 1e4 + torch.randn(1, 1, 8, 1000, device=anywhere)
    check(softmax(scores, scale=0.3), exact(scores.double(), scale=0.3), torch.float32)
    half = torch.full((1, 1, 1, 9), 6e4, device=anywhere).half()
    check(softmax(half, scale=100.0), torch.full_like(half.double(), 1 / 9), torch.float16)


@by_dtype
def test_a_window_counts_back_from_the_querys_own_position(dtype, anywhere):
    ones = torch.zeros(1, 1, 3, 7, device=anywhere, dtype=dtype)
    back = softmax(ones, causal=True, window=2)[0, 0] != 0
    assert back.int().tolist() == [[0, 0, 0, 1, 1, 0, 0], [0, 0, 0, 0, 1, 1, 0], [0] * 5 + [1, 1]]
    both = softmax(ones, window=2)[0, 0] != 0
    assert both.int().tolist() == [[0, 0, 0, 1, 1, 1, 1], [0, 0, 0, 0, 1, 1, 1], [0] * 5 + [1, 1]]
    step = ones[:, :, :1]
    assert torch.equal(softmax(step, window=3), softmax(step, causal=True, window=3))
    assert torch.equal(softmax(ones, causal=True, window=1 << 60), softmax(ones, causal=True))


def test_alibi_of_other_ranks(anywhere):
    scores = torch.randn(2, 4, 6, 33, device=anywhere)
    slopes = 2.0 ** -torch.arange(1.0, 13.0, device=anywhere)
    values = slopes[:, None] * torch.arange(33.0, device=anywhere)  # less a constant of the row
    for rank in range(3):
        keywords = {"causal": True, "head_offset": 4 * rank, "mp_size": 3}
        by_slope = softmax(scores, None, slopes, **keywords)
        alone = softmax(scores, None, slopes[4 * rank : 4 * rank + 4], causal=True)
        assert torch.equal(by_slope, alone)
        check(softmax(scores, None, values, **keywords), by_slope.double(), torch.float32)


def test_alibi_of_long_rows_is_exact(gpu):
    """The first queries of a long prompt, whose keys are far from the last."""
    scores = torch.randn(1, 2, 10_000, 10_000, device=gpu)
    slopes = torch.tensor([0.5, 0.25], device=gpu)
    actual = softmax(scores, None, slopes, causal=True)[:, :, :16, :16]
    first = scores[:, :, :16, :16].double()
    check(actual, exact(first, None, slopes.double(), causal=True), torch.float32)


@by_dtype
@pytest.mark.parametrize("rows", [2, 32])
def test_rows_longer_than_a_block(rows, dtype, anywhere):
    """A cluster of blocks holds such a row, where there are clusters and rows enough."""
    on_gpu = anywhere.type == "cuda"
    for keys in (32_769, 65_536, 100_003, 262_144, 262_145) if on_gpu else (65_535,):
        scores = torch.randn(1, rows, 1, keys, device=anywhere).to(dtype)
        scores[0, 0, 0, :40_000] = -INF  # all that the first block holds
        scores[0, 1, 0] = -INF
        truth = exact(scores.double(), scale=0.7)
        check(softmax(scores, scale=0.7), truth, dtype)
        scores[0, -1, 0, -1] = NAN
        found = softmax(scores, scale=0.7)
        assert found[0, -1].isnan().all()
        check(found[:, :-1], truth[:, :-1], dtype)


@by_dtype
def test_a_shared_mask_is_a_mask_of_every_head(dtype, anywhere):
    """Heads that share a mask's row run together; the bits are those of rows on their own."""
    for keys in (64, 1000, 1024, 4096):
        scores = torch.randn(2, 6, 5, keys, device=anywhere).to(dtype)
        for mask in (torch.randn(2, 1, 5, keys, device=anywhere).to(dtype), None):
            shared = torch.rand(2, 1, 5, keys, device=anywhere) < 0.5 if mask is None else mask
            expanded = shared.expand(2, 6, 5, keys)
            expected = softmax(scores, expanded.contiguous())
            assert torch.equal(softmax(scores, shared), expected)
            assert torch.equal(softmax(scores, expanded), expected)


def test_masks_are_those_of_torchs_attention(anywhere):
    q, k, v = torch.randn(3, 2, 3, 5, 8, device=anywhere).unbind()
    scores = q @ k.mT
    keep = torch.rand(2, 1, 5, 5, device=anywhere) < 0.8
    keep[..., 0] = True
    for mask in (keep, torch.randn(2, 3, 5, 5, device=anywhere)):
        expected = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        torch.testing.assert_close(softmax(scores, mask, scale=8**-0.5) @ v, expected)
    expected = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    torch.testing.assert_close(softmax(scores, causal=True, scale=8**-0.5) @ v, expected)


def test_no_mask_is_copied(counted_gpu):
    scores = torch.randn(8, 16, 64, 1024, device=counted_gpu)
    mask = torch.randn(1, 1, 64, 1024, device=counted_gpu).expand(8, 16, 64, 1024)
    softmax(scores, mask)
    torch.cuda.reset_peak_memory_stats(counted_gpu)
    before = torch.cuda.memory_allocated(counted_gpu)
    y = softmax(scores, mask)
    assert torch.cuda.max_memory_allocated(counted_gpu) - before == y.numel() * y.element_size()


def test_a_row_that_a_cluster_holds_needs_no_scratch_memory(counted_gpu):
    if torch.cuda.get_device_capability(counted_gpu)[0] not in (9, 10):
        pytest.skip("this GPU has no clusters")
    scores = torch.randn(1, 32, 2, 65_536, device=counted_gpu)  # few: streamed, they have parts
    softmax(scores)
    torch.cuda.reset_peak_memory_stats(counted_gpu)
    before = torch.cuda.memory_allocated(counted_gpu)
    y = softmax(scores)
    assert torch.cuda.max_memory_allocated(counted_gpu) - before == y.numel() * y.element_size()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64], ids=str)
def test_gradient_beside_a_mask(dtype, anywhere):
    for keys in (9, 136, 1023):
        scores = torch.randn(2, 3, 4, keys, device=anywhere).to(dtype).requires_grad_()
        mask = torch.randn(2, 1, 4, keys, device=anywhere).to(dtype)
        mask[..., 0, :] = -INF
        slopes = torch.rand(3, device=anywhere).to(dtype)
        grad = torch.randn(2, 3, 4, keys, device=anywhere).to(dtype)
        keywords = {"causal": True, "scale": 0.3}
        (actual,) = torch.autograd.grad(softmax(scores, mask, slopes, **keywords), scores, grad)
        y = exact(scores.detach().double(), mask.double(), slopes.double(), **keywords)
        truth = 0.3 * y * (grad - (grad * y).sum(-1, keepdim=True))
        error = (actual.double() - truth).norm() / truth.norm()
        assert actual.dtype == dtype
        assert error < max(8 * torch.finfo(dtype).eps, 1e-14)
        assert actual[:, :, 0].count_nonzero() == 0


def test_masks_and_biases_have_no_gradient(anywhere):
    scores = torch.randn(1, 2, 3, 4, device=anywhere)
    for name, arguments in {
        "mask": (torch.zeros(1, 4, device=anywhere, requires_grad=True), None),
        "alibi": (None, torch.zeros(2, device=anywhere, requires_grad=True)),
    }.items():
        with pytest.raises(RuntimeError, match=f"softmax: {name}: has no gradient here; detach it"):
            softmax(scores, *arguments)
        with torch.no_grad():
            softmax(scores, *arguments)


WRONG = {
    "scores: expected shape [B, H, Sq, L], found [3, 4]": lambda x: softmax(x[0, 0]),
    "window: expected 0 (all keys) or more, found -1": lambda x: softmax(x, window=-1),
    "mp_size: expected 1 or more, found 0": lambda x: softmax(x, mp_size=0),
    "head_offset: expected 0 to 2 (the heads of the other ranks), found 3": lambda x: softmax(
        x, head_offset=3, mp_size=2
    ),
    "mask: expected dtype bool or float32 (that of scores), found int64": lambda x: softmax(
        x, x[:, 0, 0].long()
    ),
    "mask: expected dtype bool, float32 or float16 (that of scores), found int64": lambda x: (
        softmax(x.half(), x[:, 0, 0].long())
    ),
    "mask: expected shape [1, 4], [1, 3, 4] or [1, 2, 3, 4], any of them 1, found [3, 4]": (
        lambda x: softmax(x, x[0, 0])
    ),
    "mask: expected shape [1, 4], [1, 3, 4] or [1, 2, 3, 4], any of them 1, found [4]": (
        lambda x: softmax(x, x[0, 0, 0])
    ),
    "alibi: expected shape [2] or [2, 4], found [3]": lambda x: softmax(x, None, x[0, 0, :, 0]),
    "alibi: expected shape [4] or [4, 4], found [2]": lambda x: softmax(
        x, None, x[0, :, 0, 0], mp_size=2
    ),
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_arguments(message, anywhere):
    x = torch.ones(1, 2, 3, 4, device=anywhere)
    with pytest.raises(ValueError, match=f"^{re.escape(f'softmax: {message}')}"):
        WRONG[message](x)


def test_a_mask_on_another_device(gpu):
    x = torch.ones(1, 2, 3, 4, device=gpu)
    with pytest.raises(
        ValueError,
        match=r"softmax: mask: expected device cuda:\d \(that of scores\), found cpu",
    ):
        softmax(x, torch.ones(1, 4))


@pytest.mark.parametrize("keys", [4096, 4097, 1])
def test_more_than_2_31_elements(keys, gpu):
    """The same rows again and again give the same results again and again."""
    rows = 1032  # of 8: a row lies as far off 16 bytes each time
    few = torch.randn(1, 1, rows, keys, device=gpu).bfloat16()
    times = (1 << 31) // (rows * keys) + 2
    if torch.cuda.mem_get_info(gpu)[0] < 5 * times * few.numel() * 2:
        pytest.skip("too little GPU memory free")
    mask = torch.randn(1, 1, rows, keys, device=gpu).bfloat16()
    many = few.expand(times, 1, rows, keys).contiguous()
    for arguments in ((None,), (mask,)):
        expected, actual = softmax(few, *arguments), softmax(many, *arguments)
        assert (actual == expected).all()
        del actual
    back = torch.ops.fusedops.softmax_backward(many, many)
    assert torch.equal(back[-1:], torch.ops.fusedops.softmax_backward(few, few))
    del many, back
    torch.cuda.empty_cache()


def test_typed_entry_points_take_masks(anywhere):
    scores = torch.randn(1, 2, 3, 40, device=anywhere).half()
    mask = torch.rand(1, 40, device=anywhere) < 0.5
    expected = softmax(scores, mask, causal=True)
    assert torch.equal(fusedops.softmax_fp16(scores, mask, causal=True), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("low", [-1e9, torch.finfo(torch.float32).min, -7e4, -math.inf])
def test_a_low_mask_means_the_same_everywhere(low, dtype, anywhere):
    """In a prompt, in a step and in the softmax: alone in a row, or beside keys that are kept."""
    batch, heads, tokens, dim = 2, 2, 6, 8
    qkv = torch.randn(batch, tokens, 3 * heads * dim, device=anywhere).to(dtype)
    mask = torch.zeros(batch, tokens, device=anywhere)
    mask[0] = low
    mask[1, 1:3] = low
    q, k, v = (one.transpose(1, 2).double() for one in qkv.unflatten(2, (-1, dim)).chunk(3, 2))
    scores = (q @ k.transpose(-1, -2) * dim**-0.5).float()
    weights = fusedops.softmax(scores, mask)
    exact = (weights.double() @ v).transpose(1, 2).flatten(2)
    if low < -1e8:  # float32 loses the scores beside such numbers
        alike = v[0].mean(1) if low > -math.inf else torch.zeros_like(v[0, :, 0])
        torch.testing.assert_close(exact[0], alike.flatten().expand(tokens, -1), atol=1e-6, rtol=0)
    workspace = fusedops.Workspace(heads * dim, heads, heads, 1, batch, 20, dtype, anywhere)
    how = {"workspace": workspace, "layer_id": 0, "heads": heads, "causal": False}
    # In float32 the scores' own roundings are most of it, times the spread of v.
    near = dict.fromkeys(
        ("atol", "rtol"), (32 if dtype == torch.float32 else 4) * torch.finfo(dtype).eps
    )
    if low == -7e4:
        near["atol"] += 0.01  # the scores are rounded to 1/128
    with torch.no_grad():
        prompt = fusedops.softmax_context(qkv, mask, **how)
        torch.testing.assert_close(prompt.double(), exact, **near)
        fusedops.softmax_context(qkv[:, :-1], **how)
        step = fusedops.softmax_context(qkv[:, -1:], mask, **how)
    torch.testing.assert_close(step.double(), exact[:, -1:], **near)


@pytest.mark.parametrize("kind", ["padding", "queries", "decoder"])
def test_the_caller_may_name_what_a_mask_is(kind, anywhere):
    scores = torch.randn(4, 2, 4, 4, device=anywhere)
    mask = torch.rand(4, 4, device=anywhere) < 0.7
    as_rank_4 = {"padding": mask[:, None, None], "queries": mask[None, None]}.get(kind)
    if as_rank_4 is None:
        mask = as_rank_4 = mask[:, None, None].expand(4, 2, 4, 4)
    expected = fusedops.softmax(scores, as_rank_4)
    assert torch.equal(fusedops.softmax(scores, mask, mask_kind=kind), expected)
    workspace = fusedops.Workspace(16, 2, 2, 1, 4, 8, torch.float32, anywhere)
    how = {"workspace": workspace, "layer_id": 0, "heads": 2}
    qkv = torch.randn(4, 4, 48, device=anywhere)
    expected = fusedops.softmax_context(qkv, as_rank_4, **how)
    assert torch.equal(fusedops.softmax_context(qkv, mask, mask_kind=kind, **how), expected)


def test_a_mask_of_another_kind_is_refused(anywhere):
    scores, mask = torch.randn(2, 3, 4, 5, device=anywhere), torch.ones(4, 5, device=anywhere)
    with pytest.raises(ValueError, match=r"softmax: mask: expected 3 or 4 dimensions .*, found 2"):
        fusedops.softmax(scores, mask, mask_kind="decoder")
    with pytest.raises(ValueError, match="mask_kind: expected 'padding' or 'queries' or 'decoder'"):
        fusedops.softmax(scores, mask, mask_kind="causal")
    with pytest.raises(ValueError, match="softmax: mask: expected shape"):
        fusedops.softmax(scores, mask)


@pytest.mark.filterwarnings("ignore")  # torch's own: prototypes
@pytest.mark.parametrize("kind", ["padding", "queries", "decoder", None, "alibi"])
def test_a_mask_or_slopes_that_are_no_tensor_with_strides_are_refused(kind, anywhere):
    scores, rows = torch.randn(2, 3, 4, 5, device=anywhere), torch.ones(4, 5, device=anywhere)
    workspace = fusedops.Workspace(24, 3, 3, 1, 2, 8, torch.float32, anywhere)
    how = {"workspace": workspace, "layer_id": 0, "heads": 3}
    name, before, more = "mask", (), {"mask_kind": kind}
    if kind == "alibi":
        name, before, more = "alibi", (None,), {}
    for wrong, found in (
        (3, "a torch.Tensor, found int"),
        ([[1.0]], "a torch.Tensor, found list"),
        (rows.to_sparse(), "a tensor with strides, found a tensor of layout sparse_coo"),
        (rows.to_sparse_csr(), "a tensor with strides, found a tensor of layout sparse_csr"),
    ):
        says = f"{name}: expected {found}"
        with pytest.raises(TypeError, match=f"^softmax: {says}"):
            fusedops.softmax(scores, *before, wrong, **more)
        for tokens in (1, 4):
            qkv = torch.ones(2, tokens, 72, device=anywhere)
            with pytest.raises(TypeError, match=f"^softmax_context: {says}"):
                fusedops.softmax_context(qkv, *before, wrong, **how, **more)


@pytest.mark.parametrize("kind", ["causal", 3, ["padding"], ""], ids=repr)
def test_another_mask_kind_is_refused_also_without_a_mask(kind, anywhere):
    scores = torch.randn(2, 3, 4, 5, device=anywhere)
    workspace = fusedops.Workspace(24, 3, 3, 1, 2, 8, torch.float32, anywhere)
    how = {"workspace": workspace, "layer_id": 0, "heads": 3, "mask_kind": kind}
    says = "mask_kind: expected 'padding' or 'queries' or 'decoder', found "
    with pytest.raises(ValueError, match=f"^softmax: {says}"):
        fusedops.softmax(scores, mask_kind=kind)
    with pytest.raises(ValueError, match=f"^softmax_context: {says}"):
        fusedops.softmax_context(torch.ones(2, 4, 72, device=anywhere), **how)


@pytest.mark.filterwarnings("ignore")  # torch's own: prototypes
def test_scores_of_one_head_are_refused_as_others_are(anywhere):
    scores = torch.randn(2, 4, 5, device=anywhere)
    with pytest.raises(TypeError, match=r"^softmax: scores: expected a tensor with .* sparse_csr"):
        fusedops.softmax(scores.to_sparse_csr())
    for shape in ((), (2, 4), (2, 4, 6), (2, 1, 4, 5)):
        found = str(list(shape)).replace("[", r"\[")
        says = rf"^softmax: out: expected shape \[2, 4, 5\], found {found}"
        with pytest.raises(ValueError, match=says):
            fusedops.softmax(scores, out=torch.empty(shape, device=anywhere))
    for out in (scores.to_sparse(), scores.to_sparse_csr(), 3, (scores,)):
        with pytest.raises(TypeError, match=r"^softmax: out: expected a (torch\.T|t)ensor"):
            fusedops.softmax(scores, out=out)


def test_scores_of_one_head_and_slopes_that_broadcast(anywhere):
    scores, slopes = torch.randn(2, 3, 4, 5, device=anywhere), torch.rand(3, device=anywhere)
    expected = fusedops.softmax(scores, None, slopes)
    for shape in ((3, 1, 1), (1, 3, 1, 1)):
        assert torch.equal(fusedops.softmax(scores, None, slopes.view(shape)), expected)
    keep = torch.rand(2, 5, device=anywhere) < 0.7
    one_head = fusedops.softmax(scores[:, 0], keep, slopes[:1])
    assert torch.equal(one_head, fusedops.softmax(scores[:, :1], keep, slopes[:1])[:, 0])
    assert one_head.shape == (2, 4, 5)
    workspace = fusedops.Workspace(24, 3, 3, 1, 2, 8, torch.float32, anywhere)
    qkv = torch.randn(2, 4, 72, device=anywhere)
    how = {"workspace": workspace, "layer_id": 0, "heads": 3}
    expected = fusedops.softmax_context(qkv, None, slopes, **how)
    actual = fusedops.softmax_context(qkv, None, slopes.view(1, 3, 1, 1), **how)
    assert torch.equal(actual, expected)
