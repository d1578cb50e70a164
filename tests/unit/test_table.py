import pytest

from torchwheel.text import detail_lines, size_text


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
