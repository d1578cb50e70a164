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


def test_at_the_deadline_the_rest_is_late():
    assert ahead.compile_all(JOBS, 1, time.monotonic()) == dict.fromkeys(JOBS, LATE)
