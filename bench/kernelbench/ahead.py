"""Compiles the peers of many cells side by side, before anything is timed.

Processes of their own fill the compilers' caches on disk; the timing process then finds every
graph, kernel and tuned configuration there. Compilers run side by side. What is measured to choose
a configuration runs alone on the GPU, behind a lock, so a peer is tuned as well as by itself.
"""

import multiprocessing
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from families import FAMILIES

from kernelbench.case import DEVICE, Case, Choice
from kernelbench.peers import BY_SHAPE, contestants
from kernelbench.record import LATE
from kernelbench.timing import turn


@dataclass(frozen=True)
class Job:
    """A peer to compile: a case by its place, since a function cannot be sent to a process.

    Attributes:
        family: its name.
        operator: the operator's place in the family.
        dtype, shape: of the case, as it names them.
        peer: as tables name it.
    """

    family: str
    operator: int
    dtype: str
    shape: str
    peer: str


def jobs_of(family: str, cells: Iterable[tuple[int, Case]]) -> list[list[Job]]:
    """For each cell the peers to compile: by shape, or once for an operator and a dtype.

    Args:
        family: the cells' name.
        cells: each with the place of its operator.
    """
    seen = set[tuple[int, str, str]]()
    jobs = []
    for operator, case in cells:
        peers = [who for who in contestants(case) if case.peers.get(who) is not case.plain]
        jobs.append(
            [
                Job(family, operator, case.dtype_name, case.shape_name, who)
                for who in peers
                if who in BY_SHAPE or (operator, case.dtype_name, who) not in seen
            ]
        )
        seen.update((operator, case.dtype_name, who) for who in peers)
    return jobs


def case_of(job: Job) -> Case:
    """The case that a job names."""
    operator = FAMILIES[job.family].operators[job.operator]
    chosen = Choice(dtypes=frozenset([job.dtype]), shapes=frozenset([job.shape]))
    return next(operator.cases(chosen))


def _begin(lock: Path) -> None:
    """Set a process up: one compiler, and measurements behind the lock."""
    from torch._inductor import config  # noqa: PLC0415 - costly, and for these processes alone
    from torch._inductor.runtime.benchmarking import benchmarker  # noqa: PLC0415

    torch.set_num_threads(1)
    config.compile_threads = 1
    kind: Any = type(benchmarker)
    kind.benchmark_gpu = turn(lock)(kind.benchmark_gpu)


@torch.no_grad()
def _compile(job: Job) -> tuple[Job, str | None]:
    """Compile one peer by running it; why that failed, if it did."""
    torch.compiler.reset()
    try:
        case = case_of(job)
        contestants(case)[job.peer](*case.inputs(DEVICE))
        torch.cuda.synchronize()
    except Exception as error:
        return job, f"{type(error).__name__}: {error}".splitlines()[0][:200]
    finally:
        torch.cuda.empty_cache()
    return job, None


def compile_all(jobs: Sequence[Job], workers: int, deadline: float, lock: Path) -> dict[Job, str]:
    """Compile the peers until the deadline (of time.monotonic), with the GPU's lock for tuning.

    Returns:
        Those that must not be tried, and why.
    """
    missing = dict.fromkeys(jobs, LATE)
    context = multiprocessing.get_context("spawn")  # CUDA does not survive a fork
    with context.Pool(min(workers, len(jobs)), _begin, (lock,)) as pool:
        # What is compiled once takes long, and other cells would wait for it.
        first = sorted(jobs, key=lambda job: job.peer in BY_SHAPE)
        done = pool.imap_unordered(_compile, first)
        for _ in jobs:
            try:
                job, error = done.next(timeout=max(0.0, deadline - time.monotonic()))
            except multiprocessing.TimeoutError:
                break
            del missing[job]
            if error:
                missing[job] = error
    return missing
