"""How many compilers may run side by side."""

import os
from collections.abc import Mapping

import psutil

from torchwheel.errors import UsageError

# Measured: a torch-free kernel file peaks at 0.2 GB an arch, and four archs are compiled at a time;
# the binding at 0.2 GB.
BYTES_PER_JOB = 1 << 30


def parallel_jobs(
    environ: Mapping[str, str] = os.environ,
    *,
    bytes_per_job: int = BYTES_PER_JOB,
    cores: int | None = None,
    free: int | None = None,
) -> int:
    """MAX_JOBS if set, else the cores this process may use, fewer where memory is short."""
    asked = environ.get("MAX_JOBS")
    if asked:
        if not asked.isdigit() or int(asked) < 1:
            raise UsageError(f"MAX_JOBS={asked}: a whole number of at least 1 expected")
        return int(asked)
    cores = len(os.sched_getaffinity(0)) if cores is None else cores
    free = psutil.virtual_memory().available if free is None else free
    return max(1, min(cores, free // bytes_per_job))
