"""Measurements, with clocks that tell what they are told."""

import fcntl
import itertools
import multiprocessing
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")


import kernelbench.measure as measure_module  # noqa: E402
import kernelbench.run as module  # noqa: E402
from bench_records import (  # noqa: E402
    ABOUT,
    HOST,
    timing,
)
from kernelbench import (  # noqa: E402
    ahead,
    host,
)
from kernelbench.case import Case, Choice, Family, Operator, normal  # noqa: E402
from kernelbench.record import LATE, Record, Row, merged, read  # noqa: E402
from kernelbench.timing import (  # noqa: E402
    MOST_CALLS,
    ROTATED_BYTES,
    calls_in_graph,
    interleaved,
    sets_needed,
    turn,
)

# Arithmetic of the measurements, with clocks that tell what they are told.


class Fake:
    """Gives its samples one after the other."""

    def __init__(self, *samples, peak_mb=1.0):
        self.samples = itertools.cycle(samples)
        self.peak_mb = peak_mb
        self.taken = 0

    def sample_us(self):
        self.taken += 1
        return next(self.samples)


def test_medians_of_contestants_in_turn():
    slow, fast = Fake(9.0, *range(1, 11)), Fake(3.0, peak_mb=2.0)
    times = interleaved({"slow": slow, "fast": fast}, samples=10)
    assert times["slow"].median_us == 5.5
    assert (times["slow"].low_us, times["slow"].high_us) == (2, 9)
    assert times["fast"].peak_mb == 2.0
    assert slow.taken == fast.taken == 11


@pytest.mark.parametrize("size", [1, 10_000, 1_000_000, 100_000_000, 500_000_000, 10**9, 10**11])
def test_a_rotation_outgrows_the_cache_where_a_graph_can_hold_it(size):
    sets = sets_needed(size)
    assert 1 <= sets <= MOST_CALLS
    assert sets * size >= ROTATED_BYTES or sets == MOST_CALLS
    assert sets > 1 or size >= 10**9


def test_graphs_are_of_good_length():
    assert calls_in_graph(10_000, 12.0) == MOST_CALLS
    assert calls_in_graph(4_000_000_000, 900.0) == 1
    assert calls_in_graph(100_000_000, 30.0) == 40
    assert calls_in_graph(1_000_000, 5000.0) == 4  # a matrix product: many operations, few bytes
    assert calls_in_graph(1, 1e9) == 1


def test_host_times_are_medians_of_batches(monkeypatch):
    now = itertools.count()
    monkeypatch.setattr(time, "perf_counter", lambda: next(now) * 1e-3)
    calls = {"ours": lambda: None, "gelu": lambda: None}
    assert host.medians_us(calls, wait=lambda: None, batches=3) == pytest.approx(
        {"ours": 10.0, "gelu": 10.0}
    )


@pytest.fixture
def here(monkeypatch):
    """Cells on the CPU, with fakes for graphs and copies."""

    def captured(call, inputs, moved, cache):
        call(*inputs[0])
        return Fake(5.0)

    monkeypatch.setattr(measure_module, "DEVICE", torch.device("cpu"))
    monkeypatch.setattr(measure_module, "Captured", captured)
    monkeypatch.setattr(measure_module, "Copies", lambda moved, cache: Fake(6.0))
    monkeypatch.setattr(measure_module, "sets_needed", lambda moved: 1)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)


def relu_case(**changes):
    facts = {
        "op": "relu",
        "shape": (4, 8),
        "dtype": torch.float32,
        "inputs": normal((4, 8), dtype=torch.float32),
        "ours": torch.relu,
        "peers": {"eager": lambda x: x.clamp_min(0)},
        "bytes_moved": 1 << 25,
        "compiled": False,
    }
    return Case(**(facts | changes))


def fails(x):
    raise ModuleNotFoundError("No module named 'liger_kernel'")


LOCK = Path(os.devnull)  # no other process measures


def measured_cell(**changes):
    return measure_module.measure("made", relu_case(**changes), None, 3, {}, LOCK)


def test_a_cell(here):
    row = measured_cell()
    assert row.key == ("made", "relu", "", "float32", "4x8")
    assert row.times == {
        "copy": timing(6.0, 1.0).__class__(6.0, 6.0, 6.0, 1.0),
        "ours": timing(5.0).__class__(5.0, 5.0, 5.0, 1.0),
        "eager": timing(5.0).__class__(5.0, 5.0, 5.0, 1.0),
    }
    assert row.failures == {}


def test_a_small_cell_has_no_copy(here):
    row = measured_cell(bytes_moved=1 << 10)
    assert row.in_time
    assert "copy" not in row.times


NO_LIGER = "ModuleNotFoundError: No module named 'liger_kernel'"
CELLS = {
    "a peer that cannot run": (
        {"peers": {"eager": torch.relu, "liger": fails}},
        {"liger": NO_LIGER},
    ),
    "ours that cannot run": ({"ours": fails}, {"ours": NO_LIGER}),
    "a wrong result": (
        {"ours": lambda x: torch.relu(x) * 1.1},
        {"ours": "wrong: differs by 0.1 from the first peer"},
    ),
    "nan": ({"ours": lambda x: x * float("nan")}, {"ours": ...}),
    "one result of several": (
        {"ours": lambda x: (x, x + 1), "peers": {"eager": lambda x: (x, x)}},
        {"ours": ...},
    ),
    # They are compared on copies.
    "in place": ({"ours": torch.relu_, "peers": {"eager": torch.relu}}, {}),
}


@pytest.mark.parametrize(("changes", "failures"), CELLS.values(), ids=CELLS)
def test_a_failure_is_noted_and_of_ours_a_lost_cell(here, changes, failures):
    row = measured_cell(**changes)
    assert {name: failures.get(name, says) and says for name, says in row.failures.items()} == {
        name: row.failures[name] if says is ... else says for name, says in failures.items()
    }
    assert row.loses == ("ours" in failures)
    assert "eager" in row.times


def test_who_was_not_compiled_is_left_out(here):
    late = {"compile": "late", "max-autotune": "late"}
    row = measure_module.measure("made", relu_case(compiled=True), None, 3, late, LOCK)
    assert row.failures == {"compile": "late", "max-autotune": "late"}
    assert set(row.times) == {"copy", "ours", "eager"}


def test_samples_are_taken_with_the_lock(here, monkeypatch, tmp_path):
    def samples(ready, count):
        with (tmp_path / "gpu").open("w") as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return interleaved(ready, count)

    monkeypatch.setattr(measure_module, "interleaved", samples)
    row = measure_module.measure("made", relu_case(), None, 3, {}, tmp_path / "gpu")
    assert row.times.keys() >= {"ours", "eager"}


def test_host_time_leaves_out_who_cannot_run(here, monkeypatch):
    monkeypatch.setattr(host, "CALLS", 1)
    times = measure_module.host_time("made", relu_case(peers={"eager": torch.relu, "liger": fails}))
    assert set(times.times_us) == {"ours", "eager", "torch.ops.gelu", "gelu"}
    assert all(us > 0 for us in times.times_us.values())


# Runs, with cells that cost no time.


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

    def measure(family, case, cache, samples, without, lock):
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
            "host_alone": False,
            "found": Record([ABOUT]),
            "deadline": time.monotonic() + 1000,
            "colour": False,
            "cache": None,
            "lock": tmp_path / "gpu",
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
    run._family(FAMILY, list(run._cells(FAMILY)), [{}] * 9)
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

    def compile_all(jobs, workers, deadline, lock):
        late.update(dict.fromkeys(jobs[:3], LATE))
        return late

    monkeypatch.setattr(ahead, "compile_all", compile_all)
    a_run(workers=4).families([FAMILY])
    assert measured[0][3] == {"compile": LATE, "max-autotune": LATE}
    assert measured[1][3] == {"compile": LATE}
    assert measured[2][3] == {}
    assert "compiled 15 of 18 peers" in capsys.readouterr().out


# Compiling side by side.


JOBS = [ahead.Job("vector_add", 0, dtype, "32x4096", "compile") for dtype in ("float16", "float32")]


def work(path, spans):
    def benchmark(seconds, *, rep):
        start = time.monotonic()
        time.sleep(seconds)
        spans.put((start, time.monotonic()))
        return rep

    assert turn(path)(benchmark)(0.2, rep=40) == 40


def test_measurements_of_processes_do_not_overlap(tmp_path):
    context = multiprocessing.get_context("fork")
    spans = context.Queue()
    workers = [context.Process(target=work, args=(tmp_path / "gpu", spans)) for _ in range(3)]
    for worker in workers:
        worker.start()
    taken = sorted(spans.get(timeout=30) for _ in workers)
    for worker in workers:
        worker.join()
    assert all(worker.exitcode == 0 for worker in workers)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(taken))


def test_peers_compile_for_each_shape_or_once_for_a_dtype():
    peers = {"eager": torch.relu, "liger": fails, "quack": fails}
    case = relu_case(peers=peers, compiled=True)
    cases = [case, replace(case, shape=(2, 8)), replace(case, dtype=torch.float16)]
    jobs = ahead.jobs_of("made", [(0, case) for case in cases])
    by_shape = {"compile", "max-autotune", "quack"}
    assert [{job.peer for job in of_cell} for of_cell in jobs] == [
        by_shape | {"liger"},
        by_shape,
        by_shape | {"liger"},
    ]


def test_at_the_deadline_the_rest_is_late(tmp_path):
    late = ahead.compile_all(JOBS, 1, time.monotonic(), tmp_path / "gpu")
    assert late == dict.fromkeys(JOBS, LATE)
