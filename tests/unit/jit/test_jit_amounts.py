import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchwheel.errors import UsageError
from torchwheel.text import parse_age, parse_size, size_cap


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("17", 17),
        ("2G", 2 << 30),
        ("500M", 500 << 20),
        ("1.5g", 3 << 29),
        ("4 KiB", 4096),
        (" 1TB ", 1 << 40),
        ("12B", 12),
    ],
)
def test_sizes(text, expected):
    assert parse_size(text, "--max-size") == expected


@pytest.mark.parametrize(
    ("text", "expected"), [("30d", 2592000), ("12h", 43200), ("2w", 1209600), ("1.5m", 90)]
)
def test_ages(text, expected):
    assert parse_age(text, "--older-than") == expected


@given(st.text(), st.sampled_from([parse_size, parse_age]))
def test_anything_else_is_one_line(text, read):
    text = f"{text}!"
    with pytest.raises(UsageError, match=r'^here=".*": an? (size|age) expected.*\Z'):
        read(text, "here")


@pytest.mark.parametrize("text", ["", "-1", "2X", "G", "1e9", "1,5G", "٢G", "nan", "inf"])
@pytest.mark.parametrize("read", [parse_size, parse_age])
def test_what_is_no_amount(text, read):
    with pytest.raises(UsageError, match="expected"):
        read(text, "here")


def test_the_cap_is_the_users_or_2_gib():
    assert size_cap({}) == 2 << 30
    assert size_cap({"TORCHWHEEL_CACHE_SIZE": ""}) == 2 << 30
    assert size_cap({"TORCHWHEEL_CACHE_SIZE": "1G"}) == 1 << 30
