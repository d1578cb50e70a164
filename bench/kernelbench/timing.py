"""How long a call keeps the GPU busy, on inputs that are not in its cache."""

import contextlib
import fcntl
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import torch

from kernelbench.case import Arguments, Call
from kernelbench.record import Timing

# Four times the largest L2 cache (60 MB on an H200): what a call reads was pushed out since.
ROTATED_BYTES = 4 * 60_000_000
# One set of inputs of this size pushes its own beginning out.
ALONE_BYTES = 1_000_000_000
# A graph of about a millisecond, so that its start is a small part of it; never much longer.
GRAPH_BYTES = 4_000_000_000
LONGEST_GRAPH_US = 20_000
MOST_CALLS = 256


@contextlib.contextmanager
def turn(lock: Path) -> Iterator[None]:
    """Measure while no other process with this lock does; a killed process lets go."""
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class Contestant(Protocol):
    """Something to time."""

    peak_mb: float

    def sample_us(self) -> float:
        """Microseconds of one call, once measured."""


def sets_needed(bytes_per_call: int) -> int:
    """How many sets of inputs a rotation needs; a graph has no calls for more of them."""
    if bytes_per_call >= ALONE_BYTES:
        return 1
    return min(MOST_CALLS, max(2, -(-ROTATED_BYTES // bytes_per_call)))


class Cache:
    """The GPU's cache, emptied by reading something else.

    Reading, not writing: what was written would go to memory while the next kernel is timed.
    """

    def __init__(self) -> None:
        self._other = torch.randn(ROTATED_BYTES // 4, device="cuda")
        self._sum = torch.empty((), device="cuda")

    def time_us(self, work: Callable[[], None]) -> float:
        """Microseconds that `work` keeps the stream busy with a cold cache, by device events.

        Emptying also keeps the stream busy while the host starts `work`.
        """
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.sum(self._other, dim=0, out=self._sum)
        start.record()
        work()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) * 1e3


class Captured:
    """A graph of many calls, each on the next inputs and into an output of its own."""

    def __init__(
        self, call: Call, inputs: Sequence[Arguments], bytes_per_call: int, cache: Cache
    ) -> None:
        for _ in range(3):
            call(*inputs[0])
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        call(*inputs[0])
        self.peak_mb = (torch.cuda.max_memory_allocated() - before) / 1e6
        once_us = cache.time_us(lambda: call(*inputs[0]))
        self._cache = cache
        self._calls = calls_in_graph(bytes_per_call, once_us)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._outputs = [call(*inputs[i % len(inputs)]) for i in range(self._calls)]

    def sample_us(self) -> float:
        """Microseconds a call in one replay."""
        return self._cache.time_us(self._graph.replay) / self._calls


def calls_in_graph(bytes_per_call: int, once_us: float) -> int:
    """As many calls as make a graph of good length."""
    by_bytes = -(-GRAPH_BYTES // bytes_per_call)
    by_time = int(LONGEST_GRAPH_US / once_us)
    return max(1, min(MOST_CALLS, by_bytes, by_time))


class Copies:
    """Device-to-device copies: the ceiling.

    Straight on the stream: a graph would give a large copy to the copy engine, which is slower.
    """

    def __init__(self, bytes_per_call: int, cache: Cache) -> None:
        half = bytes_per_call // 2
        # Random bits of normal numbers: data that compresses well can move faster.
        self._pairs = [
            (torch.randn(half // 4, device="cuda"), torch.empty(half // 4, device="cuda"))
            for _ in range(sets_needed(bytes_per_call))
        ]
        self._calls = max(1, min(MOST_CALLS, -(-GRAPH_BYTES // bytes_per_call)))
        self._cache = cache
        self.peak_mb = half / 1e6

    def _run(self) -> None:
        for i in range(self._calls):
            source, target = self._pairs[i % len(self._pairs)]
            target.copy_(source)

    def sample_us(self) -> float:
        """Microseconds a copy."""
        return self._cache.time_us(self._run) / self._calls


def interleaved(contestants: Mapping[str, Contestant], samples: int) -> dict[str, Timing]:
    """Sample everyone in turn, so that a slow moment of the machine meets all of them."""
    for contestant in contestants.values():
        contestant.sample_us()
    taken: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(samples):
        for name, contestant in contestants.items():
            taken[name].append(contestant.sample_us())
    return {
        name: Timing(
            statistics.median(values),
            sorted(values)[samples // 10],
            sorted(values)[-1 - samples // 10],
            contestants[name].peak_mb,
        )
        for name, values in taken.items()
    }


def large_copy_bandwidth(samples: int, cache: Cache, size: int = 1 << 30) -> float:
    """Bytes a second, read and written, of a 1 GiB copy."""
    timing = interleaved({"copy": Copies(2 * size, cache)}, samples)["copy"]
    return 2 * size / (timing.median_us * 1e-6)
