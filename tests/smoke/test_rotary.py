"""Rotary embedding: in place, positions, far positions, and what is refused."""

import math

import pytest
import torch
from cases.case import randn
from cases.rotary import rotate
from exact import by_dtype

import fusedops

STYLES = ("half", "interleaved")
by_style = pytest.mark.parametrize("style", STYLES)


def packed(device, dtype=torch.float32, heads=6, kv_heads=2, width=64, batch=2, tokens=5, gap=0):
    """A qkv tensor and its q, k and v, which are views; `gap` elements lie between heads."""
    total = heads + 2 * kv_heads
    qkv = randn((batch, tokens, total, width + gap), dtype, device)
    return qkv, *qkv[..., :width].split((heads, kv_heads, kv_heads), 2)


@by_style
@by_dtype
@pytest.mark.parametrize(("width", "gap"), [(64, 0), (64, 16), (64, 3), (40, 0), (37, 0), (33, 1)])
def test_in_place_is_the_same_and_touches_nothing_else(style, dtype, width, gap, anywhere):
    qkv, q, k, v = packed(anywhere, dtype, width=width, gap=gap)
    how = {"rotary_dim": 32, "offset": 9, "style": style}
    expected = fusedops.apply_rotary_pos_emb(q, k, **how)
    before = qkv.clone()
    actual = fusedops.apply_rotary_pos_emb_(q, k, **how)
    assert actual[0] is q
    assert actual[1] is k
    assert torch.equal(q, expected[0])
    assert torch.equal(k, expected[1])
    assert torch.equal(v, before[:, :, 8:, :width])
    assert torch.equal(qkv[..., width:], before[..., width:])
    assert torch.equal(qkv[..., 32:], before[..., 32:])


@by_style
def test_in_place_on_heads_before_tokens(style, anywhere):
    q, k = (randn((2, heads, 7, 64), torch.bfloat16, anywhere) for heads in (4, 1))
    views = [one.transpose(1, 2) for one in (q, k)]
    expected = fusedops.apply_rotary_pos_emb(*views, rotary_dim=64, style=style)
    fusedops.apply_rotary_pos_emb_(*views, rotary_dim=64, style=style)
    assert all(torch.equal(one, other) for one, other in zip(views, expected, strict=True))


def test_in_place_tells_torch_what_it_changed(anywhere):
    _, q, k, _ = packed(anywhere)
    weight = torch.ones_like(q, requires_grad=True)
    product = (weight * q).sum()  # keeps q for the gradient of weight
    fusedops.apply_rotary_pos_emb_(q, k, rotary_dim=32)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()


def test_in_place_refuses_a_gradient(anywhere):
    _, q, k, _ = packed(anywhere)
    q.requires_grad_()
    with pytest.raises(RuntimeError, match="apply_rotary_pos_emb_: writes to its arguments"):
        fusedops.apply_rotary_pos_emb_(q, k, rotary_dim=32)
    with torch.no_grad():
        fusedops.apply_rotary_pos_emb_(q, k, rotary_dim=32)


def test_in_place_refuses_keys_that_overlap_queries(anywhere):
    packed = torch.randn(2, 3, 6, 8, device=anywhere)
    before = packed.clone()
    says = "apply_rotary_pos_emb_: k: expected memory of its own, found memory that it shares with"
    for q, k in (
        (packed, packed),
        (packed[:, :, :4], packed[:, :, 3:]),
        (packed[:, :, 3:], packed[:, :, :4]),
        (packed[1:], packed[1:]),
        (packed[:, 1:], packed[:, :-1]),
        (packed.transpose(1, 2), packed.transpose(1, 2)),
    ):
        with pytest.raises(ValueError, match=says):
            fusedops.apply_rotary_pos_emb_(q, k, rotary_dim=8)
    assert torch.equal(packed, before)
    for q, k in (
        (packed[:, :, :4], packed[:, :, 4:]),
        (packed[:, :, 4:], packed[:, :, :4]),
        (packed[:, :, ::2], packed[:, :, 1::2]),
        (packed[:, :, :0], packed),
        (packed[:1], packed[1:]),
    ):
        expected = fusedops.apply_rotary_pos_emb(q, k, rotary_dim=8)
        fusedops.apply_rotary_pos_emb_(q, k, rotary_dim=8)
        assert torch.equal(q, expected[0])
        assert torch.equal(k, expected[1])


def test_in_place_refuses_what_it_could_only_copy(anywhere):
    x = torch.randn(2, 5, 6, 64, device=anywhere)
    refused = {
        r"k: expected neighbouring elements along the last dimension, found strides \[1920, 384,": (
            x[..., :32],
            x[..., ::2],
        ),
        r"q: expected elements that share no memory, found strides \[1920, 384, 0, 1\]": (
            x[:, :, :1].expand(2, 5, 6, 64),
            x,
        ),
    }
    for message, heads in refused.items():
        with pytest.raises(ValueError, match=f"apply_rotary_pos_emb_: {message}"):
            fusedops.apply_rotary_pos_emb_(*heads, rotary_dim=32)


@by_style
def test_a_position_may_be_far(style, anywhere):
    """float32 is as exact at 131071 as at 0; so are 16 bits, which round once."""
    at = torch.tensor([[0, 1, 131_071, 100_003, 65_537, 2**31 - 1, -131_071]], device=anywhere)
    q = randn((1, 7, 4, 128), torch.float32, anywhere)
    for theta in (1e4, 5e5, 1.0, 0.5):
        actual, _ = fusedops.apply_rotary_pos_emb(
            q, q[:, :, :1], at, rotary_dim=128, style=style, theta=theta
        )
        near = rotate(q.double(), at, 128, interleaved=style == "interleaved", theta=theta)
        # The truth's own angles are off by some 1e-16 of themselves.
        pairs = torch.arange(64, device=anywhere)
        largest = (at.abs().double()[..., None] * theta ** (-2 * pairs / 128)).amax(-1)
        bound = 1e-6 + 3e-15 * largest[..., None, None]
        assert bool(((actual.double() - near).abs() <= bound).all()), theta


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_positions_in_every_form(dtype, anywhere):
    _, q, k, _ = packed(anywhere, tokens=4)

    def turn(positions, **keywords):
        return fusedops.apply_rotary_pos_emb(q, k, positions, rotary_dim=64, **keywords)

    def same(one, other):
        return all(torch.equal(x, y) for x, y in zip(one, other, strict=True))

    first = torch.tensor([7, 1000], dtype=dtype, device=anywhere)
    count = torch.arange(4, dtype=dtype, device=anywhere)
    each = first[:, None] + count
    assert same(turn(first), turn(each))
    assert same(turn(first, offset=3), turn(each + 3))
    assert same(turn(count[None] + 5), turn(None, offset=5))
    assert same(turn(count[None]), turn(None))
    gaps = torch.stack([each, -each], -1)[..., 0]
    turned_strides = each.t().contiguous().t()
    assert same(turn(gaps), turn(each))
    assert same(turn(turned_strides), turn(each))
    assert same(turn(each[:1].expand(2, 4)), turn(each[:1]))
    assert same(turn(torch.stack([first, first], 1)[:, 0]), turn(first))


def test_what_does_not_turn_keeps_its_bits(anywhere):
    x = torch.tensor([math.inf, -math.inf, math.nan, -0.0, 1e-45, 3e38] * 4, device=anywhere)
    q = x.expand(1, 3, 2, 24).contiguous()
    q[..., :8] = 1.0
    actual, _ = fusedops.apply_rotary_pos_emb(q, q, rotary_dim=8)
    assert torch.equal(actual[..., 8:].view(torch.int32), q[..., 8:].view(torch.int32))


def test_infinities_and_nan_go_by_the_formula(anywhere):
    q = torch.tensor([math.inf, 1.0, 2.0, math.nan], device=anywhere).expand(1, 2, 1, 4)
    actual, _ = fusedops.apply_rotary_pos_emb(q, q, rotary_dim=4, style="interleaved", offset=1)
    exact = torch.stack(
        [q[0, 0, 0] * math.cos(p) for p in (1, 2)]
    )  # the signs of the first element
    assert actual[0, :, 0, 0].tolist() == [math.copysign(math.inf, e) for e in exact[:, 0].tolist()]
    assert actual[0, :, 0, 2:].isnan().all()


def test_turning_back_is_the_inverse(anywhere):
    _, q, k, _ = packed(anywhere, torch.float64)
    how = {"rotary_dim": 64, "offset": 77}
    rotated = fusedops.apply_rotary_pos_emb(q, k, **how)
    back = torch.ops.fusedops.apply_rotary_pos_emb_backward(*rotated, **how)
    for one, other in zip(back, (q, k), strict=True):
        torch.testing.assert_close(one, other.contiguous(), rtol=1e-14, atol=1e-14)


def test_positions_are_read_when_a_graph_runs(gpu):
    q, k = (torch.randn(4, 1, heads, 128, device=gpu).half() for heads in (32, 8))
    at = torch.tensor([1, 20, 300, 4000], device=gpu)
    fusedops.apply_rotary_pos_emb(q, k, at, rotary_dim=128)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        actual = fusedops.apply_rotary_pos_emb(q, k, at, rotary_dim=128)
        at += 1
    for _ in range(2):
        expected = fusedops.apply_rotary_pos_emb(q, k, at, rotary_dim=128)
        graph.replay()
        torch.cuda.synchronize()
        assert all(torch.equal(x, y) for x, y in zip(actual, expected, strict=True))


def test_another_offset_is_no_other_graph(anywhere):
    graphs = []

    def backend(module, _):
        graphs.append(module)
        return module

    _, q, k, _ = packed(anywhere)
    step = torch.compile(
        lambda q, k, offset: fusedops.apply_rotary_pos_emb(q, k, rotary_dim=32, offset=offset),
        backend=backend,
        fullgraph=True,
    )
    for offset in range(2, 20):
        step(q, k, offset)
    assert len(graphs) <= 2  # the first is for its offset alone


def test_in_place_is_compiled(anywhere):
    def model(qkv):
        qkv = qkv * 2
        q, k, _ = qkv.split((6, 2, 2), 2)
        fusedops.apply_rotary_pos_emb_(q, k, rotary_dim=32, offset=4)
        return qkv + 1

    qkv, *_ = packed(anywhere)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(qkv), model(qkv))


def test_more_than_2_31_elements(gpu):
    heads, width, period = 32, 128, 1031
    tokens = (1 << 31) // (heads * width) + period
    if torch.cuda.mem_get_info(gpu)[0] < 5 * tokens * heads * width * 2:
        pytest.skip("less than 22 GiB of GPU memory free")
    few = randn((1, period, heads, width), torch.bfloat16, gpu)
    q = few.repeat(1, -(-tokens // period), 1, 1)[:, :tokens]
    at = torch.arange(tokens, device=gpu)[None] % period
    expected, _ = fusedops.apply_rotary_pos_emb(few, few[:, :, :1], at[:, :period], rotary_dim=128)
    actual, small = fusedops.apply_rotary_pos_emb(q, q[:, :, :1], at, rotary_dim=128)
    for start in range(0, tokens - period, period):
        assert torch.equal(actual[:, start : start + period], expected), start
    assert torch.equal(actual[:, -1], expected[:, (tokens - 1) % period])
    assert torch.equal(small[:, -1], expected[:, (tokens - 1) % period, :1])
    del q, actual
    torch.cuda.empty_cache()


def heads_of(device, **keywords):
    _, q, k, _ = packed(device, tokens=3)
    return {"q": q, "k": k, "rotary_dim": 32, **keywords}


WRONG = {
    "style": (
        lambda d: heads_of(d, style="neox"),
        "style: expected 'half' or 'interleaved', found 'neox'",
    ),
    "rank": (
        lambda d: heads_of(d, q=torch.ones(3, 4, 64, device=d)),
        r"q: expected shape \[B, S, H, D\], found \[3, 4, 64\]",
    ),
    "other tokens": (
        lambda d: heads_of(d, k=torch.ones(2, 4, 2, 64, device=d)),
        r"k: expected shape \[2, 3, heads, 64\] \(that of q, any heads\), found \[2, 4, 2, 64\]",
    ),
    "odd rotary_dim": (
        lambda d: heads_of(d, rotary_dim=31),
        r"rotary_dim: expected an even number from 2 to 64 \(the last dimension of q\), found 31",
    ),
    "no rotary_dim": (lambda d: heads_of(d, rotary_dim=0), "rotary_dim: .*, found 0"),
    "large rotary_dim": (lambda d: heads_of(d, rotary_dim=66), "rotary_dim: .*, found 66"),
    "theta": (
        lambda d: heads_of(d, theta=-1.5),
        "theta: expected a positive finite number, found -1.5",
    ),
    "theta is no number": (
        lambda d: heads_of(d, theta=math.nan),
        "theta: expected a positive finite number, found nan",
    ),
    "fractions of positions": (
        lambda d: heads_of(d, positions=torch.ones(2, device=d)),
        "positions: expected dtype int32 or int64, found float32",
    ),
    "positions of others": (
        lambda d: heads_of(d, positions=torch.ones(3, device=d).int()),
        r"positions: expected shape \[2\], \[2, 3\] or \[1, 3\], found \[3\]",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments(name, anywhere):
    make, message = WRONG[name]
    for function in (fusedops.apply_rotary_pos_emb, fusedops.apply_rotary_pos_emb_):
        says = f"^{function.__name__}: {message}"
        with pytest.raises(ValueError, match=says):
            function(**make(anywhere))


def test_positions_on_another_device(gpu):
    arguments = heads_of(gpu, positions=torch.tensor([1, 2]))
    with pytest.raises(
        ValueError, match=r"positions: expected device cuda:\d \(that of q\), found cpu"
    ):
        fusedops.apply_rotary_pos_emb(**arguments)
