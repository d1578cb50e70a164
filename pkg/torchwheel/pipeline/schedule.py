"""Variants side by side, within cores and memory; one that fails does not stop the rest."""

import dataclasses
import os
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait

import psutil

from torchwheel.errors import TorchwheelError, UsageError
from torchwheel.matrix.variants import Variant
from torchwheel.pipeline.records import BuildRecord

# Measured: importing a CUDA torch takes 1 GB and its tests up to 3 in a container.
BYTES_PER_SLOT = 4 << 30


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What came of one variant: a record (`fresh` if anything had to be done) or an error."""

    variant: Variant
    record: BuildRecord | None = None
    fresh: bool = False
    error: str | None = None


def slots(variants: int, *, cores: int | None = None, free: int | None = None) -> int:
    """How many variants are in work at a time."""
    cores = len(os.sched_getaffinity(0)) if cores is None else cores
    free = psutil.virtual_memory().available if free is None else free
    return max(1, min(variants, cores, free // BYTES_PER_SLOT))


def jobs_each(variants: Sequence[Variant], at_once: int, jobs: int) -> int:
    """How many of `jobs` compilers each variant may run: those that have a toolkit share them."""
    compiling = sum(variant.toolkit is not None for variant in variants)
    return max(1, jobs // max(1, min(at_once, compiling)))


def build_order(variants: Sequence[Variant]) -> list[Variant]:
    """The order of work: toolkits by turns, since variants of one wait for its shared objects."""
    seen: dict[str, int] = {}
    ranks = []
    for variant in variants:
        name = variant.toolkit.name if variant.toolkit else ""
        seen[name] = seen.get(name, 0) + 1
        ranks.append(seen[name])
    order = sorted(range(len(variants)), key=lambda i: (ranks[i], i))
    return [variants[i] for i in order]


def side_by_side(
    variants: Sequence[Variant],
    work: Callable[[Variant], tuple[BuildRecord, bool]],
    at_once: int,
) -> list[Outcome]:
    """The outcome of `work` on each variant, in the order given.

    Raises:
        UsageError: the call or the matrix is wrong; what has not begun is not begun.
    """

    def one(variant: Variant) -> Outcome:
        try:
            record, fresh = work(variant)
        except UsageError:
            raise
        except TorchwheelError as error:
            return Outcome(variant, error=str(error))
        return Outcome(variant, record, fresh)

    with ThreadPoolExecutor(at_once) as pool:
        futures = {variant.id: pool.submit(one, variant) for variant in build_order(variants)}
        try:
            wait(futures.values(), return_when=FIRST_EXCEPTION)
        finally:
            # What waits for its turn must not begin after an error or ^C.
            for future in futures.values():
                future.cancel()
        broken = [f for f in futures.values() if not f.cancelled() and f.exception()]
        if broken:
            broken[0].result()
        return [futures[variant.id].result() for variant in variants]
