"""Cells and records: what is kept, printed and written to pages."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

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
    # A run that nothing is left of is forgotten.
    slower = record(row(), about={"copy_bytes_per_second": 3e12})
    assert merged([record(row()), slower]).about == slower.about
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


def test_the_lines_of_a_terminal(golden):
    wide = row(
        shape="1x16x1024x16384",
        bytes_moved=10**12,
        times={who: timing(123456.7, 99999.9) for who in ("ours", "copy", "a", "b", "c", "d", "e")},
    )
    lines = []
    for cell in (row(), small(), lost(), wide, row(times={})):
        peers = terminal.peers_of(cell)
        lines += terminal.head("norm", cell, peers).splitlines()
        lines += [terminal.line(cell, 4e12, peers, colour=False)]
    other = replace(HOST, op="layer_norm_residual_store", times_us={"liger": 12.5})
    lines += [*terminal.summary(record()), *terminal.host_table([HOST, other])]
    golden("terminal.txt", "\n".join(lines) + "\n")
    assert all(len(line) <= 80 or line.startswith("liger, 2 cells") for line in lines)
    red, plain = (terminal.line(one, 4e12, ["eager"], colour=True) for one in (lost(), row()))
    assert (red[:5], red[-4:], plain[0]) == ("\033[31m", "\033[0m", " ")


# Plots and the generated part of pages. Those that are committed show what is drawn and written.


BENCH = Path(kernels_docs.__file__).parent


@pytest.fixture
def found():
    return record(row(), small(), lost(dtype="float32"), lost(op="pre_rms_norm", way="<odd & way>"))


def test_a_run_leaves_a_plot_of_each_family_beside_its_record(tmp_path):
    found = record(row(), row(family="softmax", op="softmax"))
    drawn = plot.beside(tmp_path / "kernels.json", found)
    assert [path.name for path in drawn] == ["kernels-norm.svg", "kernels-softmax.svg"]
    assert drawn[1].read_text() == plot.draw(found, "softmax")


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


@pytest.mark.parametrize("name", ["norm.md", "norm.svg"])
def test_stale_files_are_named(docs, name):
    kernels_docs_run(docs, docs / "r.json")
    path = docs / "ops" / name
    path.write_text(path.read_text(encoding="utf-8").replace("99", "100"), encoding="utf-8")
    done = kernels_docs_run(docs, "--check")
    assert done.returncode == 1
    assert f"{path} is stale" in done.stderr
    write(record(row(times={"ours": timing(36.0)})), docs / "r.json")
    assert {path.name for path in kernels_docs.stale(docs / "ops")} == {"norm.md", "norm.svg"}


def test_a_family_without_a_page_is_named(docs):
    write(record(row(family="rotary")), docs / "r.json")
    done = kernels_docs_run(docs, docs / "r.json")
    assert "rotary: no page" in done.stdout
    assert not (docs / "ops" / "rotary.svg").exists()


def test_the_committed_pages_are_what_their_records_give():
    assert list(kernels_docs.stale(kernels_docs.DOCS)) == []
