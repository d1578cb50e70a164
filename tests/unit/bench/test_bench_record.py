"""Cells, records, and what becomes of several."""

import json
from dataclasses import replace

import pytest
from bench_records import HOST, MIB, lost, record, row, small, timing
from kernelbench.record import LATE, Record, from_json, merged, read, to_json, write


def test_share_of_the_copy():
    assert row().percent("ours", 4.0e12) == pytest.approx(100 * 128 * MIB / 34.0e-6 / 4.0e12)
    assert row().of_its_copy == pytest.approx(100 * 34.5 / 34.0)
    assert small().of_its_copy is None


def test_the_best_peer_is_no_yardstick():
    assert row().best_peer == "compile"
    assert row().lead == pytest.approx(35 / 34)


@pytest.mark.parametrize(("us", "loses"), [(35.6, False), (35.8, True)])
def test_a_cell_is_lost_beyond_two_per_cent(us, loses):
    assert row(times=dict(row().times) | {"ours": timing(us)}).loses is loses


def test_a_wrong_or_failed_cell_is_lost():
    assert row(failures={"ours": "wrong: differs by 1"}).loses
    without = {who: time for who, time in row().times.items() if who != "ours"}
    failed = row(times=without)
    assert failed.loses
    assert failed.lead == 0


def test_alone_nothing_is_lost():
    alone = row(times={"ours": timing(3.0)})
    assert alone.lead is None
    assert not alone.loses


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
