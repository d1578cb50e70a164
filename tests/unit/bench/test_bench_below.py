"""Which cells of a record miss the target for their bandwidth, and whether a copy does too."""

from pathlib import Path

import kernels_below
import pytest
from bench_records import MIB, record, row, small, timing
from kernelbench.record import read

ROOT = Path(__file__).parents[3]


def test_large_cells_below_the_target_are_counted():
    def cell(ours, copy, **changes):
        return row(times={"ours": timing(ours), "copy": timing(copy)}, **changes)

    # 128 MiB in 33.55 us are 100 per cent.
    rows = [
        cell(34.0, 34.5, op="met"),
        cell(40.0, 34.0, op="below a copy"),
        cell(36.0, 36.0, op="as a copy"),
        cell(400.0, 34.0, op="smaller", bytes_moved=63 * MIB),
        small(),
        cell(35.2, 34.0, family="softmax"),
    ]
    lines = list(kernels_below.table(record(*rows)))
    assert "| norm, 97 % | 3 | 2 | 84 % | 1 |" in lines
    assert "| softmax, 95 % | 1 | 0 |  | 0 |" in lines


@pytest.fixture(scope="module")
def newest():
    return read(ROOT / "docs" / "records" / "kernels-h200-2026-11-27.json")


def test_the_documented_table_is_the_records(newest):
    documented = (ROOT / "docs" / "figures.md").read_text(encoding="utf-8")
    assert "\n".join(kernels_below.table(newest)) in documented


def test_the_documented_count_of_lost_cells_is_the_records(newest):
    lost, cells = len(newest.lost), len(newest.rows)
    words = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert f" {lost} of {cells} cells are more than 2 % slower than a peer" in words
    figures = " ".join((ROOT / "docs" / "figures.md").read_text(encoding="utf-8").split())
    assert f"**{lost} of all {cells} cells are more than 2 % slower than a peer**" in figures


def test_the_documented_count_of_an_h100_is_the_records():
    found = read(ROOT / "docs" / "records" / "kernels-h100-2026-11-27.json")
    figures = " ".join((ROOT / "docs" / "figures.md").read_text(encoding="utf-8").split())
    lost, cells = len(found.lost), len(found.rows)
    assert f"**{lost} of {cells} cells are more than 2 % slower than a peer**" in figures
