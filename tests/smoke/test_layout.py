"""Padded heads: slices of a packed projection, what is refused, and attention on them."""

import math

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from cases.case import randn
from cases.layout import padded
from exact import by_dtype, poison

import fusedops

by_width = pytest.mark.parametrize("width", [0, 1, 31, 32, 33, 64, 72, 80, 100, 127, 128])


@by_dtype
@by_width
def test_a_slice_of_a_packed_projection(dtype, width, anywhere):
    """Read by strides, whatever alignment the slice has."""
    heads = 3
    qkv = randn((2, 5, 3 * heads * width), dtype, anywhere)
    for third in qkv.chunk(3, -1) if width else [qkv]:
        split = third.unflatten(-1, (heads, width))
        poison(padded(split))
        assert torch.equal(fusedops.add_padding(split), padded(split))
        poison(padded(split))
        actual = fusedops.pad_transform(third, heads=heads)
        assert torch.equal(actual, padded(split).transpose(1, 2))
        assert actual.is_contiguous()


def test_bits_are_kept(anywhere):
    x = torch.tensor([math.inf, -math.inf, math.nan, -0.0, 1e-45] * 2, device=anywhere)
    actual = fusedops.add_padding(x)
    assert torch.equal(actual[:10].view(torch.int32), x.view(torch.int32))
    assert actual[10:].view(torch.int32).count_nonzero() == 0


def test_attention_of_padded_heads_is_that_of_the_plain_ones(anywhere):
    heads, width = 4, 40
    q, k, v = randn((3, 2, 17, heads * width), torch.float32, anywhere)
    plain = F.scaled_dot_product_attention(
        *(one.unflatten(-1, (heads, width)).transpose(1, 2) for one in (q, k, v))
    )
    wide = F.scaled_dot_product_attention(
        *(fusedops.pad_transform(one, heads=heads) for one in (q, k, v)), scale=width**-0.5
    )
    torch.testing.assert_close(wide[..., :width], plain)
    assert wide[..., width:].count_nonzero() == 0


def test_more_than_2_31_elements(gpu):
    rows, period = (1 << 31) // 128 + 1031, 1031
    if torch.cuda.mem_get_info(gpu)[0] < 3 * rows * 128 * 2:
        pytest.skip("less than 13 GiB of GPU memory free")
    few = randn((period, 100), torch.bfloat16, gpu)
    actual = fusedops.add_padding(few.repeat(-(-rows // period), 1)[:rows])
    expected = padded(few)
    for start in range(0, rows - period, period):
        assert torch.equal(actual[start : start + period], expected), start
    assert torch.equal(actual[-1], expected[(rows - 1) % period])
    del actual
    torch.cuda.empty_cache()


WRONG = {
    "wide": (
        lambda d: fusedops.add_padding(torch.ones(2, 129, device=d)),
        "add_padding: x: expected heads of at most 128 elements, found 129",
    ),
    "no dimension": (
        lambda d: fusedops.add_padding(torch.ones((), device=d)),
        "add_padding: x: expected at least 1 dimension, found 0",
    ),
    "rank": (
        lambda d: fusedops.pad_transform(torch.ones(2, 12, device=d), heads=3),
        r"pad_transform: x: expected shape \[B, S, heads \* D\], found \[2, 12\]",
    ),
    "heads": (
        lambda d: fusedops.pad_transform(torch.ones(2, 2, 12, device=d), heads=5),
        r"pad_transform: heads: expected a divisor of 12 \(the last dimension of x\), found 5",
    ),
    "no heads": (
        lambda d: fusedops.pad_transform(torch.ones(2, 2, 12, device=d), heads=0),
        "pad_transform: heads: expected a divisor of 12 .*, found 0",
    ),
    "wide heads": (
        lambda d: fusedops.pad_transform(torch.ones(2, 2, 300, device=d), heads=2),
        "pad_transform: x: expected heads of at most 128 elements, found 150",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments(name, anywhere):
    call, message = WRONG[name]
    with pytest.raises(ValueError, match=f"^{message}"):
        call(anywhere)
