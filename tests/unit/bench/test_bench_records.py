"""Cells and records: what is kept, printed and written to pages."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import kernels_docs
import pytest
from bench_records import HOST, MIB, lost, record, row, small, timing
from kernelbench import page, plot, terminal
from kernelbench.record import LATE, Record, from_json, merged, read, to_json, write

# Cells, records, and what becomes of several.


def test_share_of_the_copy():
    assert row().percent("ours", 4.0e12) == pytest.approx(100 * 128 * MIB / 34.0e-6 / 4.0e12)
    assert row().of_its_copy == pytest.approx(100 * 34.5 / 34.0)
    assert small().of_its_copy is None


PEERS = {who: time for who, time in row().times.items() if who != "ours"}
CELLS = {
    "the best peer is no yardstick": ({}, 35 / 34, False),
    "beyond one per cent": ({"times": {**PEERS, "ours": timing(35.6)}}, 35 / 35.6, False),
    "beyond two per cent": ({"times": {**PEERS, "ours": timing(35.8)}}, 35 / 35.8, True),
    "wrong": ({"failures": {"ours": "wrong: differs by 1"}}, 35 / 34, True),
    "failed": ({"times": PEERS}, 0, True),
    "alone": ({"times": {"ours": timing(3.0)}}, None, False),
}


@pytest.mark.parametrize(("changes", "lead", "loses"), CELLS.values(), ids=CELLS)
def test_a_cell_is_lost_beyond_two_per_cent_or_without_a_right_result(changes, lead, loses):
    cell = row(**changes)
    assert cell.loses is loses
    assert cell.lead == (lead and pytest.approx(lead))


def test_json_gives_the_record_back_and_marks_lost_cells():
    found = record()
    assert from_json(to_json(found)) == found
    written = json.loads(to_json(found))["rows"]
    assert [entry["loses"] for entry in written] == [False, False, True]
    assert written[0]["percent"]["ours"] == pytest.approx(98.69, abs=0.01)


def test_a_file_is_replaced_as_a_whole(tmp_path):
    path = tmp_path / "r.json"
    write(record(), path)
    write(record(row()), path)
    assert read(path) == record(row())
    assert [entry.name for entry in tmp_path.iterdir()] == ["r.json"]


def test_merging_believes_the_last_and_keeps_each_runs_bandwidth():
    first = record(row(), small())
    second = record(
        row(dtype="float32"), small(bytes_moved=7), about={"copy_bytes_per_second": 3e12}
    )
    both = merged([first, second])
    assert [(r.dtype, r.shape, r.bytes_moved, r.run) for r in both.rows] == [
        ("float16", "8192x4096", 128 * MIB, 0),
        ("float16", "32x4096", 7, 1),
        ("float32", "8192x4096", 128 * MIB, 1),
    ]
    assert [both.bandwidth(r) for r in both.rows] == [4e12, 3e12, 3e12]
    assert both.host == [replace(HOST, run=1)]


def test_merging_forgets_runs_that_nothing_is_left_of():
    both = merged([record(row()), record(row(), about={"copy_bytes_per_second": 3e12})])
    assert [run["copy_bytes_per_second"] for run in both.about] == [3e12]
    assert both.bandwidth(both.rows[0]) == 3e12


def test_merging_with_nothing_changes_nothing():
    assert merged([Record([]), record()]) == record()


@pytest.mark.parametrize("fact", ["gpu", "torch"])
def test_what_cannot_be_compared_is_not_merged(fact):
    with pytest.raises(ValueError, match=f"expected one {fact}, found .*other"):
        merged([record(), record(about={fact: "other"})])


def test_a_cell_without_a_peer_for_lack_of_time_is_not_complete():
    assert row().complete
    assert not row(failures={"max-autotune": LATE}).complete


def test_families_are_parted():
    found = record(row(), lost(family="softmax", op="softmax"))
    assert found.families() == ["norm", "softmax"]
    assert found.of_family("softmax").rows == [found.rows[1]]
    assert found.of_family("softmax").host == []


# What is printed.


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


# Plots and the generated part of pages.


BENCH = Path(kernels_docs.__file__).parent


@pytest.fixture
def found():
    return record(row(), small(), lost(dtype="float32"), lost(op="pre_rms_norm", way="<odd & way>"))


def parsed(found):
    return ET.fromstring(plot.draw(found, "norm"))  # noqa: S314 - our own


def test_a_plot_is_well_formed_and_has_everyone(found):
    tree = parsed(found)
    words = [element.text for element in tree.iter() if element.text and element.text.strip()]
    assert {"rms_norm", "pre_rms_norm <odd & way>", "8192x4096", "32x4096"} <= set(words)
    assert {"float16", "float32", "ours", "eager", "compile", "flashinfer"} <= set(words)
    assert "99 %" in words
    assert "2.12 µs" in words


def test_a_run_leaves_a_plot_of_each_family_beside_its_record(tmp_path):
    found = record(row(), row(family="softmax", op="softmax"))
    drawn = plot.beside(tmp_path / "kernels.json", found)
    assert [path.name for path in drawn] == ["kernels-norm.svg", "kernels-softmax.svg"]
    assert drawn[1].read_text() == plot.draw(found, "softmax")


def test_nothing_is_drawn_outside_the_plot():
    over = row(times={"ours": timing(1.0), "eager": timing(2.0)})
    tree = parsed(record(over))
    width = float(tree.get("width"))
    for bar in tree.iter("{http://www.w3.org/2000/svg}rect"):
        assert float(bar.get("x", 0)) + float(bar.get("width")) <= width
    for text in tree.iter("{http://www.w3.org/2000/svg}text"):
        if text.get("text-anchor") is None:
            # Helvetica's letters are half as wide as high, on average.
            end = float(text.get("x")) + 0.55 * float(text.get("font-size")) * len(text.text)
            assert end <= width, text.text


def test_a_peer_without_a_colour_of_its_own_gets_one():
    drawn = plot.draw(record(row(times={"ours": timing(1.0), "sdpa": timing(2.0)})), "norm")
    assert plot.FURTHER[0] in drawn


def test_cells_that_no_committed_page_has():
    assert page.cell(None, 4e12) == ""
    assert page.cell(row(times={}), 4e12) == "**failed**"


@pytest.fixture
def docs(tmp_path, found):
    (tmp_path / "ops").mkdir()
    (tmp_path / "ops" / "norm.md").write_text("# Norms\n\nWords.\n", encoding="utf-8")
    (tmp_path / "ops" / "other.md").write_text("# Other\n", encoding="utf-8")
    write(found, tmp_path / "r.json")
    return tmp_path


def kernels_docs_run(docs, *options):
    command = [sys.executable, BENCH / "kernels_docs.py", "--docs", docs / "ops", *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_page_gets_its_figures_and_gets_them_once(docs):
    for _ in range(2):
        assert kernels_docs_run(docs, docs / "r.json").returncode == 0
        text = (docs / "ops" / "norm.md").read_text(encoding="utf-8")
        assert text.startswith("# Norms\n\nWords.\n\n## Figures\n\n" + page.BEGIN)
        assert text.count(page.BEGIN) == text.count(page.END) == 1
    assert (docs / "ops" / "norm.svg").exists()
    assert list(kernels_docs.stale(docs / "ops")) == []
    assert kernels_docs_run(docs, "--check").returncode == 0


def test_words_after_the_part_stay(docs):
    path = docs / "ops" / "norm.md"
    path.write_text(f"# Norms\n\n{page.BEGIN}\nold\n{page.END}\n\nMore.\n", encoding="utf-8")
    kernels_docs_run(docs, docs / "r.json")
    text = path.read_text(encoding="utf-8")
    assert "old" not in text
    assert text.endswith(f"{page.END}\n\nMore.\n")


@pytest.mark.parametrize("name", ["norm.md", "norm.svg"])
def test_stale_files_are_named(docs, name):
    kernels_docs_run(docs, docs / "r.json")
    path = docs / "ops" / name
    path.write_text(path.read_text(encoding="utf-8").replace("99", "100"), encoding="utf-8")
    done = kernels_docs_run(docs, "--check")
    assert done.returncode == 1
    assert f"{path} is stale" in done.stderr


def test_a_newer_record_makes_pages_stale(docs):
    kernels_docs_run(docs, docs / "r.json")
    write(record(row(times={"ours": timing(36.0)})), docs / "r.json")
    assert {path.name for path in kernels_docs.stale(docs / "ops")} == {"norm.md", "norm.svg"}


def test_a_family_without_a_page_is_named(docs):
    write(record(row(family="rotary")), docs / "r.json")
    done = kernels_docs_run(docs, docs / "r.json")
    assert "rotary: no page" in done.stdout
    assert not (docs / "ops" / "rotary.svg").exists()


def test_the_committed_pages_are_what_their_records_give():
    assert list(kernels_docs.stale(kernels_docs.DOCS)) == []
