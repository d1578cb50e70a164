"""Plots and the generated part of pages."""

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import kernels_docs
import pytest
from bench_records import lost, record, row, small, timing
from kernelbench import page, plot
from kernelbench.record import write

BENCH = Path(kernels_docs.__file__).parent


@pytest.fixture
def found():
    return record(row(), small(), lost(dtype="float32"), lost(op="pre_rms_norm", way="<odd & way>"))


def test_the_same_record_gives_the_same_bytes(found):
    assert plot.draw(found, "norm") == plot.draw(found, "norm")


def parsed(found):
    return ET.fromstring(plot.draw(found, "norm"))  # noqa: S314 - our own


def test_a_plot_is_well_formed_and_has_everyone(found):
    tree = parsed(found)
    words = [element.text for element in tree.iter() if element.text and element.text.strip()]
    assert {"rms_norm", "pre_rms_norm <odd & way>", "8192x4096", "32x4096"} <= set(words)
    assert {"float16", "float32", "ours", "eager", "compile", "flashinfer"} <= set(words)
    assert "99 %" in words
    assert "2.12 µs" in words


def test_lost_cells_are_red(found):
    def red(record_):
        return plot.draw(record_, "norm").count(plot.LOST)

    assert red(record(row())) == 1  # the legend's
    assert red(found) == 1 + 2 * 2  # the bar and its figure


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


def test_cells_of_the_table(found):
    first, second, third, _ = found.rows
    assert page.cell(first, 4e12) == "99 (compile 96)"
    assert page.cell(second, 4e12) == "2.12 µs (flashinfer 4.9 µs)"
    assert page.cell(third, 4e12) == "**✗ 84** (eager 96)"
    assert page.cell(None, 4e12) == ""
    assert page.cell(row(times={}), 4e12) == "**failed**"


def test_a_part_names_its_record_and_has_all_cells(found):
    text = page.part_of(found, "norm", "../records/r.json")
    assert "[record](../records/r.json)" in text
    assert "4 cells, 2 lost" in text
    table = [line.split("|") for line in text.splitlines() if line.startswith("| rms_norm")]
    assert [cells[2].strip() for cells in table[:2]] == ["8192 x 4096", "32 x 4096"]
    assert "| rms_norm | 8.1 | 1.17 | eager 9.0, gelu 6.9 |" in text


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
