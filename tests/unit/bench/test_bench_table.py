"""What is printed."""

from dataclasses import replace

from bench_records import HOST, lost, record, row, small, timing
from kernelbench import terminal


def test_a_cell_is_a_line_of_eighty_columns():
    wide = row(
        shape="1x16x1024x16384",
        bytes_moved=10**12,
        times={who: timing(123456.7, 99999.9) for who in ("ours", "copy", "a", "b", "c", "d", "e")},
    )
    for cell in (row(), small(), lost(), wide, row(times={})):
        peers = terminal.peers_of(cell)
        text = terminal.line(cell, 4e12, peers, colour=False)
        assert len(text) <= 80
        assert "\n" not in text
        assert all(len(part) <= 80 for part in terminal.head("norm", cell, peers).splitlines())


def test_large_cells_are_shares_and_small_ones_microseconds():
    peers = terminal.peers_of(row())
    assert peers == ["eager", "compile", "flashinfer", "liger"]
    assert terminal.line(row(), 4e12, peers, colour=False).split() == [
        *("f16", "8192x4096", "34.00", "99", "101", "1.03", "64.00", "67", "96", "65", "-")
    ]
    assert terminal.line(small(), 4e12, peers, colour=False).split() == [
        *("f16", "32x4096", "2.12", "2.31", "0.50", "10.00", "-", "4.90", "-")
    ]


def test_a_lost_cell_is_marked_and_red():
    peers = ["eager"]
    assert "0.88!" in terminal.line(lost(), 4e12, peers, colour=False)
    red = terminal.line(lost(), 4e12, peers, colour=True)
    assert red.startswith("\033[31m")
    assert red.endswith("\033[0m")
    assert not terminal.line(row(), 4e12, peers, colour=True).startswith("\033")


def test_a_failed_cell_is_marked():
    text = terminal.line(row(times={"eager": timing(50)}), 4e12, ["eager"], colour=False)
    assert "failed" in text
    assert "!" in text


def test_numbers_have_the_digits_there_is_room_for():
    numbers = (1.234, 99.999, 123.4, 12345.0, 123456.0)
    shown = [terminal.number(value, 6) for value in numbers]
    assert shown == ["  1.23", " 100.0", " 123.4", " 12345", "    ++"]


def test_the_summary_comes_last_with_lost_cells_before_it():
    lines = list(terminal.summary(record()))
    assert lines[-1] == "3 cells, 1 lost to a peer"
    assert lines[-2].split() == ["norm", "3", "1", "84", "0.88", "1.17"]
    assert "! x float16 8192x4096: 0.88 of eager" in lines
    assert lines[0] == "liger, 2 cells: ModuleNotFoundError: No module named 'liger_kernel'"
    assert all(len(line) <= 80 for line in lines[1:])


def test_host_times():
    other = replace(HOST, op="layer_norm_residual_store", times_us={"liger": 12.5})
    lines = list(terminal.host_table([HOST, other]))
    assert all(len(line) <= 80 for line in lines)
    assert [line.split()[-5:] for line in lines] == [
        ["ours", "x", "gelu", "gelu", "eager", "liger"][-5:],
        ["8.1", "1.17", "6.9", "9.0", "-"],
        ["layer_norm_residual_store", "-", "-", "-", "12.5"],
    ]
