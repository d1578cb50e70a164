"""Compiling side by side."""

import itertools
import multiprocessing
import time

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from kernelbench import ahead  # noqa: E402
from kernelbench.record import LATE  # noqa: E402

JOBS = [ahead.Job("vector_add", 0, dtype, "32x4096", "compile") for dtype in ("float16", "float32")]


def work(path, spans):
    def benchmark(seconds, *, rep):
        start = time.monotonic()
        time.sleep(seconds)
        spans.put((start, time.monotonic()))
        return rep

    assert ahead._alone(path, benchmark)(0.2, rep=40) == 40


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


def test_inductor_measures_where_the_lock_is():
    from torch._inductor.runtime.benchmarking import benchmarker

    assert callable(type(benchmarker).benchmark_gpu)


def test_at_the_deadline_the_rest_is_late():
    assert ahead.compile_all(JOBS, 1, time.monotonic()) == dict.fromkeys(JOBS, LATE)


@pytest.mark.integration
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_peer_that_cannot_be_compiled_is_noted():
    missing = ahead.compile_all(JOBS, 2, time.monotonic() + 300)
    assert missing.keys() == set(JOBS)
    assert all(why != LATE for why in missing.values())
