"""Builds variants, and parts of a universal wheel, side by side, within cores and memory.

The failure of a variant does not stop the others; without one of its parts there is no wheel.
"""

import dataclasses
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, CancelledError, ThreadPoolExecutor, wait
from contextvars import copy_context
from typing import TypeVar

from torchwheel.matrix.variants import Variant
from torchwheel.pipeline.build_records import BuildRecord
from torchwheel_runtime.builder.ninja import BYTES_PER_JOB, available_memory
from torchwheel_runtime.errors import TorchwheelError, UsageError
from torchwheel_runtime.tasks import ENDING, HEARING
from torchwheel_runtime.text import hanging_lines, join_names

# Measured: importing a CUDA torch takes 1 GB and its tests up to 3 in a container.
BYTES_PER_SLOT = 4 << 30

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The result of one variant: its record, `fresh` if this run built it, or an error."""

    variant: Variant
    record: BuildRecord | None = None
    fresh: bool = False
    error: str | None = None


def slots(variants: int) -> int:
    """How many variants are built at a time."""
    return max(1, min(variants, _cores(), available_memory() // BYTES_PER_SLOT))


def _cores() -> int:
    """The cores of this process."""
    return len(os.sched_getaffinity(0))


def jobs_each(variants: Sequence[Variant], at_once: int, jobs: int) -> int:
    """How many of `jobs` compilers each variant may run; variants with a toolkit share them."""
    return max(1, jobs // _compiling(variants, at_once))


def _compiling(variants: Sequence[Variant], at_once: int) -> int:
    """How many of the variants that are built at a time run compilers; at least 1."""
    native = [variant for variant in variants if variant.native]
    return max(1, min(at_once, len(chains_of(native))))


def parts_each(
    variants: Sequence[Variant], at_once: int, jobs: int, *, most: int | None = None
) -> int:
    """How many parts of a universal wheel are built at a time.

    Each part may run `jobs` compilers, so that the kernels, which take longest, have every core
    when the other parts are done. Before that more compilers run than there are cores, and memory
    has to do for all. MAX_JOBS is kept: where it is set, one part is built at a time.

    Args:
        variants: all that are built.
        at_once: variants that are built at a time; those with a toolkit share the result.
        jobs: compilers that each of them may run.
        most: the most builds at a time that the user wants, if they said so.
    """
    if os.environ.get("MAX_JOBS"):
        return 1
    fitting = min(_cores(), available_memory() // (jobs * BYTES_PER_JOB))
    return max(1, min(fitting, most or fitting) // _compiling(variants, at_once))


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


def chains_of(variants: Sequence[Variant]) -> list[list[Variant]]:
    """Variants that are built one after the other.

    The Pythons of an ordinary project's torch share what does not include Python.h by the compiler
    cache, which has it once the first of them is built. A labelled wheel has parts of the universal
    one, which are built once.
    """
    labelled = {variant.unlabelled_id for variant in variants if variant.label}
    chains: dict[object, list[Variant]] = {}
    for variant in variants:
        key: object = object()
        if variant.unlabelled_id in labelled:
            key = variant.unlabelled_id
        if variant.ordinary and variant.toolkit:
            key = (variant.toolkit.name, variant.torch_release, variant.platform)
        chains.setdefault(key, []).append(variant)
    return list(chains.values())


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

    outcomes = in_chains(chains_of(build_order(variants)), outcome_of, at_once)
    places = {outcome.variant.id: outcome for of_chain in outcomes for outcome in of_chain}
    return [places[variant.id] for variant in variants]


def stopped_lines(states: Mapping[str, str]) -> list[str]:
    """What a run that was stopped came to: the variants of each state."""
    lines = []
    for state in ("finished", "failed", "stopped", "not begun"):
        names = [name for name, found in states.items() if found == state]
        lines += hanging_lines(f"  {state:<9}  ", join_names(names)) if names else []
    return lines


def in_order(
    items: Sequence[_Item], work: Callable[[_Item], _Result], at_once: int
) -> list[_Result]:
    """The results of `work` on the items, which are begun in their order, `at_once` at a time.

    After an error or ^C no further item is begun, and what is at work is waited for. The error of
    the first item that failed is raised.
    """
    return [result for (result,) in in_chains([(item,) for item in items], work, at_once)]


def in_chains(
    chains: Sequence[Sequence[_Item]], work: Callable[[_Item], _Result], at_once: int
) -> list[list[_Result]]:
    """The same for chains of items: those of one chain are worked on one after the other."""
    stopped = threading.Event()

    def begin(item: _Item) -> _Result:
        if stopped.is_set() or ENDING.is_set():  # ^C is heard here before the caller leaves
            raise CancelledError
        try:
            return work(item)
        except BaseException:
            stopped.set()  # before this thread takes the next item
            raise

    with ThreadPoolExecutor(at_once) as pool:
        try:
            futures = [
                # The thread works for the task that the caller is in.
                pool.submit(copy_context().run, lambda one: [begin(item) for item in one], chain)
                for chain in chains
            ]
            # With a time limit: a signal that came just before a wait is heard after it.
            while wait(futures, HEARING / 10, FIRST_EXCEPTION).not_done and not stopped.is_set():
                continue
        finally:
            stopped.set()  # after ^C too
    errors = [error for future in futures if (error := future.exception())]
    for error in errors:
        if not isinstance(error, CancelledError):
            raise error
    return [future.result() for future in futures]
