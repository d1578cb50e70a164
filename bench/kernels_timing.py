"""How long a call keeps the GPU busy, on inputs that do not fit its cache."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

# Four times the largest L2 cache (60 MB on an H200): what a call reads was pushed out since.
ROTATED_BYTES = 4 * 60_000_000
# A graph of about a millisecond, so that the gap between two graphs is a small part of it.
GRAPH_BYTES = 4_000_000_000
MOST_CALLS = 1024

Call = Callable[..., Tensor]
Inputs = Sequence[tuple[Tensor, ...]]


@dataclass(frozen=True)
class Timing:
    """Microseconds of one call on the device, and the most memory that was allocated for it."""

    median_us: float
    low_us: float  # 10th percentile
    high_us: float  # 90th percentile
    peak_mb: float  # of one call, its inputs left out


def sets_needed(bytes_per_call: int) -> int:
    """How many sets of inputs a rotation needs to outgrow the cache."""
    return max(2, -(-ROTATED_BYTES // bytes_per_call))


def _between_events(work: Callable[[], None]) -> float:
    """Microseconds that `work` keeps the stream busy, by device events."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    work()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 1e3


class Captured:
    """A graph of many calls, each on the next inputs and into an output of its own."""

    def __init__(self, call: Call, inputs: Inputs, bytes_per_call: int) -> None:
        for _ in range(3):
            call(*inputs[0])
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        call(*inputs[0])
        self.peak_mb = (torch.cuda.max_memory_allocated() - before) / 1e6
        wanted = min(MOST_CALLS, -(-GRAPH_BYTES // bytes_per_call))
        self.calls = max(len(inputs), wanted)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.outputs = [call(*inputs[i % len(inputs)]) for i in range(self.calls)]

    def sample_us(self) -> float:
        """Microseconds a call in one replay."""
        return _between_events(self.graph.replay) / self.calls


class Copies:
    """Device-to-device copies: the ceiling.

    Straight on the stream: a graph would give a large copy to the copy engine, which is slower.
    """

    def __init__(self, bytes_per_call: int) -> None:
        count = sets_needed(bytes_per_call)
        half = bytes_per_call // 2
        # Random bits of normal numbers: data that compresses well can move faster.
        self.pairs = [
            (torch.randn(half // 4, device="cuda"), torch.empty(half // 4, device="cuda"))
            for _ in range(count)
        ]
        self.calls = max(count, min(MOST_CALLS, -(-GRAPH_BYTES // bytes_per_call)))
        self.peak_mb = half / 1e6

    def _run(self) -> None:
        for i in range(self.calls):
            source, target = self.pairs[i % len(self.pairs)]
            target.copy_(source)

    def sample_us(self) -> float:
        """Microseconds a copy."""
        return _between_events(self._run) / self.calls


def interleaved(contestants: Mapping[str, Captured | Copies], samples: int) -> dict[str, Timing]:
    """Sample everyone in turn, so that a slow moment of the machine meets all of them."""
    for captured in contestants.values():
        captured.sample_us()
    taken: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(samples):
        for name, captured in contestants.items():
            taken[name].append(captured.sample_us())
    return {
        name: Timing(
            statistics.median(values),
            sorted(values)[samples // 10],
            sorted(values)[-1 - samples // 10],
            contestants[name].peak_mb,
        )
        for name, values in taken.items()
    }


def large_copy_bandwidth(samples: int, size: int = 1 << 30) -> float:
    """Bytes a second, read and written, of a 1 GiB copy."""
    timing = interleaved({"copy": Copies(2 * size)}, samples)["copy"]
    return 2 * size / (timing.median_us * 1e-6)
