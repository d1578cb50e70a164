"""Texts for people: sizes, ages and tables."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchwheel_runtime.errors import UsageError
from torchwheel_runtime.text import (
    clock_text,
    detail_lines,
    parse_age,
    parse_size,
    size_cap,
    size_text,
    table_rows,
)


@pytest.mark.parametrize(
    ("size", "decimals", "text"),
    [
        *((0, 1, "0 KiB"), (1 << 20, 1, "1.0 MiB"), ((1 << 20) - 1, 1, "1024 KiB")),
        *((3 << 29, 1, "1.5 GiB"), (3 << 19, 2, "1.50 MiB"), (1536, 2, "1.5 KiB")),
    ],
)
def test_a_size_as_text(size, decimals, text):
    assert size_text(size, decimals=decimals) == text


def test_lines_below_a_row():
    lines = detail_lines("archs", " ".join(["gfx90a:xnack-"] * 8))
    assert len(lines) == 2
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("  archs gfx90a:xnack- ")
    assert lines[1].startswith("        gfx90a:xnack-")


def test_columns_grow_with_their_cells_but_not_with_a_rows_last_one():
    rows = table_rows("<3 >4 <", [("name", "size", "x"), ("a", "12345", ""), ("b", "it failed")])
    assert rows == ["name   size  x", "a     12345", "b     it failed"]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        # A column that only ever holds `-` goes, wherever it is; without a row there is none.
        ([("a", "cpu", "x"), ("1", "-", "y"), ("2", "-", "z")], ["a  x", "1  y", "2  z"]),
        ([("cpu", "x", "a"), ("-", "y", "-"), ("-", "z", "-")], ["x", "y", "z"]),
        ([("a", "cpu", "x"), ("1", "-", "y"), ("2", "3", "")], ["a  cpu  x", "1  -    y", "2  3"]),
        ([("a", "b", "c"), ("1",), ("2", "-")], ["a  c", "1", "2"]),
        ([("a", "-", "c")], ["a  -  c"]),
    ],
)
def test_a_column_without_anything_in_it_goes(rows, expected):
    assert table_rows("< < <", rows) == expected


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00"), (65.9, "1:05"), (3599, "59:59"), (36001, "10:00:01")]
)
def test_a_time_as_text(seconds, text):
    assert clock_text(seconds) == text


def test_a_last_column_that_is_wrapped_stays_below_itself():
    (row,) = table_rows("<7 <", [("cu130", " ".join(["9.0+PTX"] * 12))], wrap=True)
    first, second = row.splitlines()
    assert first.startswith("cu130    9.0+PTX 9.0+PTX")
    assert len(first) <= 80
    assert second.startswith(" " * 9 + "9.0+PTX")


@pytest.mark.parametrize(
    ("read", "text", "expected"),
    [
        *((parse_size, "0", 0), (parse_size, "17", 17), (parse_size, "2G", 2 << 30)),
        *((parse_size, "500M", 500 << 20), (parse_size, "1.5g", 3 << 29)),
        *((parse_size, "4 KiB", 4096), (parse_size, " 1TB ", 1 << 40), (parse_size, "12B", 12)),
        *((parse_age, "30d", 2592000), (parse_age, "12h", 43200), (parse_age, "2w", 1209600)),
        (parse_age, "1.5m", 90),
    ],
)
def test_sizes_and_ages(read, text, expected):
    assert read(text, "--max") == expected


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
