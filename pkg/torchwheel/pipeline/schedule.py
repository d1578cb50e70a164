"""Builds variants side by side, within cores and memory; a failure does not stop the others."""

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
    """The result of one variant: its record, `fresh` if this run built it, or an error."""

    variant: Variant
    record: BuildRecord | None = None
    fresh: bool = False
    error: str | None = None


def slots(variants: int, *, cores: int | None = None, free: int | None = None) -> int:
    """How many variants are built at a time."""
    cores = len(os.sched_getaffinity(0)) if cores is None else cores
    free = psutil.virtual_memory().available if free is None else free
    return max(1, min(variants, cores, free // BYTES_PER_SLOT))


def jobs_each(variants: Sequence[Variant], at_once: int, jobs: int) -> int:
    """How many of `jobs` compilers each variant may run; variants with a toolkit share them."""
    compiling = sum(variant.native for variant in variants)
    return max(1, jobs // max(1, min(at_once, compiling)))


def build_order(variants: Sequence[Variant]) -> list[Variant]:
    """The order of work: toolkits take turns, as variants of a toolkit wait for its objects."""
    counts: dict[str, int] = {}
    ranks = []
    for variant in variants:
        name = variant.toolkit.name if variant.toolkit else ""
        counts[name] = counts.get(name, 0) + 1
        ranks.append(counts[name])
    order = sorted(range(len(variants)), key=lambda i: (ranks[i], i))
    return [variants[i] for i in order]


def side_by_side(
    variants: Sequence[Variant],
    work: Callable[[Variant], tuple[BuildRecord, bool]],
    at_once: int,
) -> list[Outcome]:
    """The outcome of `work` on each variant, in the given order.

    Raises:
        UsageError: the call or the matrix is wrong; no further variant is started.
    """

    def outcome_of(variant: Variant) -> Outcome:
        try:
            record, fresh = work(variant)
        except UsageError:
            raise
        except TorchwheelError as error:
            return Outcome(variant, error=str(error))
        return Outcome(variant, record, fresh)

    with ThreadPoolExecutor(at_once) as pool:
        futures = {
            variant.id: pool.submit(outcome_of, variant) for variant in build_order(variants)
        }
        try:
            wait(futures.values(), return_when=FIRST_EXCEPTION)
        finally:
            # After an error or ^C no further variant may start.
            for future in futures.values():
                future.cancel()
        errors = [f for f in futures.values() if not f.cancelled() and f.exception()]
        if errors:
            errors[0].result()
        return [futures[variant.id].result() for variant in variants]
