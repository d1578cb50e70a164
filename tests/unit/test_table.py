import pytest

from torchwheel.text import detail_lines, size_text, table_rows


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 KiB"), (1 << 20, "1.0 MiB"), ((1 << 20) - 1, "1024 KiB"), (3 << 29, "1.5 GiB")],
)
def test_sizes(size, text):
    assert size_text(size) == text


def test_lines_below_a_row():
    lines = detail_lines("archs", " ".join(["gfx90a:xnack-"] * 8))
    assert len(lines) == 2
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("  archs gfx90a:xnack- ")
    assert lines[1].startswith("        gfx90a:xnack-")


def test_more_decimals():
    assert size_text(3 << 19, decimals=2) == "1.50 MiB"
    assert size_text(1536, decimals=2) == "1.5 KiB"


def test_columns_grow_with_their_cells_but_not_with_a_rows_last_one():
    rows = table_rows("<3 >4 <", [("name", "size", "x"), ("a", "12345", ""), ("b", "it failed")])
    assert rows == ["name   size  x", "a     12345", "b     it failed"]


def test_a_last_column_that_is_wrapped_stays_below_itself():
    (row,) = table_rows("<7 <", [("cu130", " ".join(["9.0+PTX"] * 12))], wrap=True)
    first, second = row.splitlines()
    assert first.startswith("cu130    9.0+PTX 9.0+PTX")
    assert len(first) <= 80
    assert second.startswith(" " * 9 + "9.0+PTX")
