"""Arithmetic of the measurements, with clocks that tell what they are told."""

import itertools
import time

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import kernelbench.measure as module  # noqa: E402
from bench_records import timing  # noqa: E402
from kernelbench import host  # noqa: E402
from kernelbench.case import Case, normal  # noqa: E402
from kernelbench.timing import (  # noqa: E402
    MOST_CALLS,
    ROTATED_BYTES,
    calls_in_graph,
    interleaved,
    sets_needed,
)


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

    monkeypatch.setattr(module, "DEVICE", torch.device("cpu"))
    monkeypatch.setattr(module, "Captured", captured)
    monkeypatch.setattr(module, "Copies", lambda moved, cache: Fake(6.0))
    monkeypatch.setattr(module, "sets_needed", lambda moved: 1)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)


def case(**changes):
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


def measured(**changes):
    return module.measure("made", case(**changes), None, 3, {})


def test_a_cell(here):
    row = measured()
    assert row.key == ("made", "relu", "", "float32", "4x8")
    assert row.times == {
        "copy": timing(6.0, 1.0).__class__(6.0, 6.0, 6.0, 1.0),
        "ours": timing(5.0).__class__(5.0, 5.0, 5.0, 1.0),
        "eager": timing(5.0).__class__(5.0, 5.0, 5.0, 1.0),
    }
    assert row.failures == {}


def test_a_small_cell_has_no_copy(here):
    row = measured(bytes_moved=1 << 10)
    assert row.in_time
    assert "copy" not in row.times


def test_a_peer_that_cannot_run_is_noted(here):
    row = measured(peers={"eager": torch.relu, "liger": fails})
    assert row.failures == {"liger": "ModuleNotFoundError: No module named 'liger_kernel'"}
    assert not row.loses


def test_ours_failing_is_a_lost_cell(here):
    row = measured(ours=fails)
    assert "ours" in row.failures
    assert "eager" in row.times
    assert row.loses


def test_a_wrong_result_is_a_lost_cell(here):
    row = measured(ours=lambda x: torch.relu(x) * 1.1)
    assert row.failures == {"ours": "wrong: differs by 0.1 from the first peer"}
    assert row.loses


def test_nan_is_wrong(here):
    assert "ours" in measured(ours=lambda x: x * float("nan")).failures


def test_who_was_not_compiled_is_left_out(here):
    row = module.measure(
        "made", case(compiled=True), None, 3, {"compile": "late", "max-autotune": "late"}
    )
    assert row.failures == {"compile": "late", "max-autotune": "late"}
    assert set(row.times) == {"copy", "ours", "eager"}


def test_in_place_results_are_compared_on_copies(here):
    row = measured(ours=torch.relu_, peers={"eager": torch.relu})
    assert row.failures == {}


def test_several_results_are_compared(here):
    row = measured(ours=lambda x: (x, x + 1), peers={"eager": lambda x: (x, x)})
    assert "ours" in row.failures


def test_host_time_leaves_out_who_cannot_run(here, monkeypatch):
    monkeypatch.setattr(host, "CALLS", 1)
    times = module.host_time("made", case(peers={"eager": torch.relu, "liger": fails}))
    assert set(times.times_us) == {"ours", "eager", "torch.ops.gelu", "gelu"}
    assert all(us > 0 for us in times.times_us.values())
