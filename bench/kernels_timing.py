"""How long a call keeps the GPU busy, on inputs that do not fit its cache."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

# Four times the largest L2 cache (60 MB on an H200): what one replay reads is gone before the next.
ROTATED_BYTES = 4 * 60_000_000
LEAST_REPLAY_MS = 0.2


@dataclass(frozen=True)
class Timing:
    """Microseconds of one call on the device."""

    median_us: float
    low_us: float  # 10th percentile
    high_us: float  # 90th percentile


def sets_needed(bytes_per_call: int) -> int:
    """How many sets of inputs a rotation needs to outgrow the cache."""
    return max(2, -(-ROTATED_BYTES // bytes_per_call))


def time_on_device(
    call: Callable[..., Tensor], inputs: Sequence[tuple[Tensor, ...]], samples: int
) -> Timing:
    """Time `call` by device events around replays of a graph that calls it once per input set.

    The graph keeps launch gaps out. Every call has an output of its own, so writes rotate too.
    """
    for _ in range(3):
        call(*inputs[0])
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = [call(*each) for each in inputs]
    replays = max(1, round(LEAST_REPLAY_MS / max(_replay_ms(graph, 1), 1e-3)))
    for _ in range(3):
        _replay_ms(graph, replays)
    calls = replays * len(inputs)
    times = sorted(_replay_ms(graph, replays) * 1e3 / calls for _ in range(samples))
    del outputs, graph
    return Timing(statistics.median(times), times[samples // 10], times[-1 - samples // 10])


def copy_bandwidth(samples: int, elements: int = 1 << 28) -> float:
    """Bytes a second, read and written, of a large device-to-device copy."""
    sources = [(torch.randn(elements, device="cuda"),) for _ in range(2)]

    def copy(source: Tensor) -> Tensor:
        return torch.empty_like(source).copy_(source)

    timing = time_on_device(copy, sources, samples)
    return 2 * elements * 4 / (timing.median_us * 1e-6)


def _replay_ms(graph: torch.cuda.CUDAGraph, times: int) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(times):
        graph.replay()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end))
