"""Runs, with cells that cost no time."""

import time
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import kernelbench.run as module  # noqa: E402
from bench_records import ABOUT, HOST, timing  # noqa: E402
from kernelbench import ahead  # noqa: E402
from kernelbench.case import Case, Choice, Family, Operator, normal  # noqa: E402
from kernelbench.record import LATE, Record, Row, merged, read  # noqa: E402


def case(shape, dtype, op="bias_gelu"):
    return Case(
        op,
        shape,
        dtype,
        inputs=normal(shape, dtype=dtype),
        ours=torch.relu,
        peers={"eager": torch.relu},
        bytes_moved=1 << 30,
    )


SHAPES = ((8192, 4096), (32, 4096), (1, 4096))
FAMILY = Family("made", (Operator("bias_gelu", case, SHAPES),))
ABSENT = Family("tomorrow", (Operator("of_tomorrow", case, SHAPES),))


@pytest.fixture
def measured(monkeypatch):
    """The cells that were measured; each takes 34 us."""
    cells = []

    def measure(family, case, cache, samples, without):
        cells.append((family, case.dtype_name, case.shape_name, dict(without)))
        times = {"ours": timing(34.0), "eager": timing(50.0)}
        where = (family, case.op, case.way, case.dtype_name, case.shape_name)
        return Row(*where, case.bytes_moved, case.in_time, times, dict(without))

    monkeypatch.setattr(module, "measure", measure)
    monkeypatch.setattr(module, "host_time", lambda family, case: replace(HOST, op=case.op))
    return cells


@pytest.fixture
def a_run(tmp_path):
    def make(**changes):
        facts = {
            "choice": Choice(),
            "samples": 3,
            "workers": 0,
            "out": tmp_path / "out.json",
            "resumed": Record([]),
            "behind": None,
            "found": Record([ABOUT]),
            "deadline": time.monotonic() + 1000,
            "colour": False,
            "cache": None,
        }
        return module.Run(**(facts | changes))

    return make


def test_a_run_of_lost_cells_times_no_other(a_run, measured):
    a_run().families([FAMILY])
    slow = {"ours": timing(60.0), "eager": timing(50.0)}
    first, *others = read(a_run().out).rows
    lost = Record([ABOUT], [replace(first, times=slow), *others]).lost
    measured.clear()

    a_run(behind=lost).families([FAMILY])

    assert [cell[1:3] for cell in measured] == [(first.dtype, first.shape)]


def test_every_cell_is_timed_printed_and_written(a_run, measured, capsys):
    run = a_run()
    run.families([FAMILY])
    assert [cell[1:3] for cell in measured] == [
        (dtype, shape)
        for dtype in ("float32", "float16", "bfloat16")
        for shape in ("8192x4096", "32x4096", "1x4096")
    ]
    assert read(run.out) == run.found
    assert len(run.found.rows) == 9
    assert len(run.found.host) == 1
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "made: bias_gelu"
    assert len(printed) == 2 + 9 + 2


def test_a_missing_operator_is_skipped_by_name(a_run, measured, capsys):
    a_run().families([ABSENT, FAMILY])
    assert "tomorrow: skipped, fusedops has no of_tomorrow" in capsys.readouterr().out
    assert {cell[0] for cell in measured} == {"made"}


@pytest.mark.parametrize(
    ("choice", "cells"),
    [
        (Choice(dtypes=frozenset(["float16"])), 3),
        (Choice(shapes=frozenset(["1x4096"])), 3),
        (Choice(ops=frozenset(["other"])), 0),
        (Choice(quick=True), 6),
    ],
)
def test_choices(a_run, measured, choice, cells):
    a_run(choice=choice).families([FAMILY])
    assert len(measured) == cells


def test_a_run_that_breaks_keeps_what_it_has(a_run, measured, monkeypatch):
    measure = module.measure

    def breaks(*args):
        if len(measured) == 4:
            raise RuntimeError("the GPU is gone")
        return measure(*args)

    monkeypatch.setattr(module, "measure", breaks)
    run = a_run()
    with pytest.raises(RuntimeError, match="gone"):
        run.families([FAMILY])
    assert len(read(run.out).rows) == 4


def test_when_the_time_is_up_the_rest_is_counted(a_run, measured, capsys):
    run = a_run(deadline=time.monotonic() + module.RESERVE_S - 1)
    run._family(FAMILY, 0.0)
    run.families([FAMILY, ABSENT])
    assert measured == []
    printed = capsys.readouterr().out
    assert "made: 9 cells left out, the time is up" in printed
    assert "made, tomorrow: left out, the time is up" in printed


def test_resuming_times_what_is_missing_or_was_late(a_run, measured):
    first = a_run()
    first.families([FAMILY])
    rows = list(first.found.rows)
    rows[0] = replace(rows[0], failures={"compile": LATE})
    measured.clear()
    second = a_run(resumed=replace(first.found, rows=rows[:-1]))
    second.families([FAMILY])
    assert [cell[1:3] for cell in measured] == [("float32", "8192x4096"), ("bfloat16", "1x4096")]
    assert {r.key for r in read(second.out).rows} == {r.key for r in rows}
    assert read(second.out) == merged([second.resumed, second.found])


def test_what_was_not_compiled_is_not_tried(a_run, measured, monkeypatch, capsys):
    late = {}

    def compile_all(jobs, workers, deadline):
        late.update(dict.fromkeys(jobs[:3], LATE))
        return late

    monkeypatch.setattr(ahead, "compile_all", compile_all)
    a_run(workers=4).families([FAMILY])
    assert measured[0][3] == {"compile": LATE, "max-autotune": LATE}
    assert measured[1][3] == {"compile": LATE}
    assert measured[2][3] == {}
    assert "made: compiled 15 of 18 peers" in capsys.readouterr().out
