"""What a call costs the host: many calls on tiny tensors, nothing waited for."""

import gc
import statistics
import time
from collections.abc import Callable, Mapping

CALLS = 100
BATCHES = 31


def medians_us(
    calls: Mapping[str, Callable[[], object]],
    wait: Callable[[], object],
    batches: int = BATCHES,
) -> dict[str, float]:
    """Microseconds a call, the median of batches that take turns.

    The GPU's queue holds more than a batch of launches and is empty when one begins, so the host
    is never made to wait within it.

    Args:
        calls: by contestant.
        wait: returns when the device has done everything.
        batches: of 100 calls, for each contestant.
    """
    taken: dict[str, list[float]] = {name: [] for name in calls}
    gc.collect()
    gc.disable()
    try:
        for _ in range(batches):
            for name, call in calls.items():
                wait()
                start = time.perf_counter()
                for _ in range(CALLS):
                    call()
                taken[name].append((time.perf_counter() - start) / CALLS * 1e6)
    finally:
        gc.enable()
    wait()
    return {name: statistics.median(values) for name, values in taken.items()}
