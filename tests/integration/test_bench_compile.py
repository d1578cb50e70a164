"""The benchmark's peers, compiled ahead by torch's own compiler in processes of their own."""

import sys
import time
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

from kernelbench import ahead  # noqa: E402
from kernelbench.record import LATE  # noqa: E402

pytestmark = pytest.mark.integration

JOBS = [ahead.Job("vector_add", 0, dtype, "32x4096", "compile") for dtype in ("float16", "float32")]


def test_inductor_measures_where_the_lock_is():
    from torch._inductor.runtime.benchmarking import benchmarker

    assert callable(type(benchmarker).benchmark_gpu)


@pytest.mark.nightly
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_peer_that_cannot_be_compiled_is_noted():
    missing = ahead.compile_all(JOBS, 2, time.monotonic() + 300)
    assert missing.keys() == set(JOBS)
    assert all(why != LATE for why in missing.values())
