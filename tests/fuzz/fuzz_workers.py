"""Runs inputs in several processes, and survives a reader that kills or blocks its process."""

import collections
import contextlib
import dataclasses
import functools
import multiprocessing
import os
import random
import resource
import shutil
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from fuzz_promise import Verdict, Watch
from fuzz_targets import TARGETS, Target

MUTATED = 1 << 16
"""Bytes of the largest input that is mutated; larger ones are read as they are."""
BATCH = 250
_DEAF = 15
"""Times the promised seconds after which a process that gives no sign is killed."""


_REFUSES, _ACCEPTS = "refuses it", "accepts it"


@dataclasses.dataclass(frozen=True)
class Batch:
    """Inputs of one target, `first` to `first + count - 1`.

    Attributes:
        seed: of the mutations; None for the inputs of the corpus.
        until: a time of time.monotonic() after which no further input is read.
    """

    target: str
    first: int
    count: int
    seed: int | None
    until: float | None = None


@dataclasses.dataclass(frozen=True)
class Fault:
    """An input that broke a promise."""

    target: str
    name: str
    fault: str
    place: str
    content: bytes

    @property
    def kind(self) -> tuple[str, ...]:
        """Equal for inputs that are most likely broken by the same cause."""
        what = self.fault.split(":")[0][:60]
        # What is refused or accepted is one input of the corpus, each for its own cause.
        return self.target, self.place, what, self.name if what in (_REFUSES, _ACCEPTS) else ""


@dataclasses.dataclass
class Tally:
    """What came of the inputs of a target."""

    inputs: int = 0
    refused: int = 0
    seconds: float = 0.0
    worst_seconds: float = 0.0
    slowest: str = ""
    worst_mib: float = 0.0
    largest: str = ""
    faults: int = 0

    def count(self, name: str, verdict: Verdict) -> None:
        """Count one input."""
        self.inputs += 1
        self.refused += verdict.refused
        self.faults += verdict.fault is not None
        self.seconds += verdict.seconds
        if verdict.seconds > self.worst_seconds:
            self.worst_seconds, self.slowest = verdict.seconds, name
        if verdict.mib > self.worst_mib:
            self.worst_mib, self.largest = verdict.mib, name

    def add(self, other: "Tally") -> None:
        """Add those of another process."""
        for name in ("inputs", "refused", "seconds", "faults"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        if other.worst_seconds > self.worst_seconds:
            self.worst_seconds, self.slowest = other.worst_seconds, other.slowest
        if other.worst_mib > self.worst_mib:
            self.worst_mib, self.largest = other.worst_mib, other.largest


def input_of(batch: Batch, number: int, targets: Any = TARGETS) -> tuple[str, bytes]:
    """The name and the bytes of an input; the same for the same seed, target and number."""
    target: Target = targets[batch.target]
    corpus = target.corpus()
    if batch.seed is None:
        name = list(corpus.all)[number]
        return f"corpus: {name}", corpus.all[name]
    small = [content for content in corpus.all.values() if len(content) <= MUTATED]
    rng = random.Random(f"{batch.seed} {batch.target} {number}")
    parent = rng.choice(small)
    return f"seed {batch.seed}, number {number}", target.mutate(rng, parent, small)


def as_expected(target: Target, number: int, verdict: Verdict) -> Verdict:
    """The verdict on an input of the corpus; whether it is refused counts too."""
    corpus = target.corpus()
    name = list(corpus.all)[number]
    if verdict.fault is None and name in corpus.right and verdict.refused:
        return dataclasses.replace(verdict, fault=_REFUSES, place="")
    if verdict.fault is None and name in corpus.hostile and not verdict.refused | target.tolerant:
        return dataclasses.replace(verdict, fault=_ACCEPTS, place="")
    return verdict


def _work(calls: Connection, targets: Any) -> None:
    """A process of the fuzzer: does batches until it is told to stop."""
    os.environ.pop("PYTHONPATH", None)
    # Its scratch folder is in memory where that can be: most readers take files.
    memory = Path("/dev/shm")  # noqa: S108
    where = memory if os.access(memory, os.W_OK) else None
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir=where) as folder:
        calls.send(("folder", folder))
        watch = Watch(Path(folder))
        try:
            while (batch := calls.recv()) is not None:
                _do(batch, Path(folder, batch.target), watch, calls, targets)
        # A fault of the fuzzer itself must not look like one of a reader.
        except Exception:
            calls.send(("broken", traceback.format_exc()))


def _do(batch: Batch, folder: Path, watch: Watch, calls: Connection, targets: Any) -> None:
    target: Target = targets[batch.target]
    folder.mkdir(exist_ok=True)
    tally, faults = Tally(), []
    for number in range(batch.first, batch.first + batch.count):
        if batch.until and time.monotonic() > batch.until:
            break
        name, content = input_of(batch, number, targets)
        calls.send(("reads", number))
        verdict = watch.judge(functools.partial(target.read, content, folder), target.promise)
        if batch.seed is None:
            verdict = as_expected(target, number, verdict)
        tally.count(name, verdict)
        if verdict.fault:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            faults.append(Fault(batch.target, name, verdict.fault, verdict.place, content))
    calls.send(("done", tally, faults))


@dataclasses.dataclass
class _Worker:
    process: Any
    calls: Connection
    folder: str = ""
    batch: Batch | None = None
    number: int = 0
    heard: float = 0.0


class Pool:
    """Processes that do batches; a process that dies or blocks is replaced."""

    def __init__(self, jobs: int, targets: Any = TARGETS) -> None:
        self.targets = targets
        self.tallies: dict[str, Tally] = collections.defaultdict(Tally)
        self.faults: list[Fault] = []
        self._workers = [self._start() for _ in range(jobs)]

    def run(self, batches: Iterator[Batch], say: Callable[[Fault], None]) -> None:
        """Do the batches; `say` gets each broken promise as it is found."""
        waiting: collections.deque[Batch] = collections.deque()
        while True:
            for worker in self._workers:
                if worker.batch is None and (batch := _next(waiting, batches)):
                    worker.batch, worker.heard = batch, time.monotonic()
                    worker.number = batch.first
                    worker.calls.send(batch)
            busy = [worker for worker in self._workers if worker.batch]
            if not busy:
                return
            ready = wait([worker.calls for worker in busy], timeout=1)
            for worker in busy:
                try:
                    if worker.calls in ready:
                        for fault in self._hear(worker):
                            say(fault)
                    elif self._deaf(worker):
                        say(self._replace(worker, waiting, "blocks its process"))
                except (EOFError, OSError):
                    say(self._replace(worker, waiting))

    def close(self) -> None:
        """End the processes."""
        for worker in self._workers:
            with contextlib.suppress(OSError):
                worker.calls.send(None)
        for worker in self._workers:
            worker.process.join(10)
            worker.process.kill()

    def _start(self) -> _Worker:
        ours, theirs = multiprocessing.Pipe()
        fork = multiprocessing.get_context("fork")
        process = fork.Process(target=_work, args=(theirs, self.targets), daemon=True)
        process.start()
        theirs.close()
        return _Worker(process, ours, heard=time.monotonic())

    def _hear(self, worker: _Worker) -> Sequence[Fault]:
        while worker.calls.poll():
            what, *rest = worker.calls.recv()
            worker.heard = time.monotonic()
            if what == "folder":
                worker.folder = rest[0]
            elif what == "reads":
                worker.number = rest[0]
            elif what == "broken":
                raise RuntimeError(f"the fuzzer itself failed: {rest[0]}")
            else:
                tally, faults = rest
                self.tallies[worker.batch.target].add(tally)  # type: ignore[union-attr]
                self.faults += faults
                worker.batch = None
                return list(faults)
        return ()

    def _deaf(self, worker: _Worker) -> bool:
        batch = worker.batch
        seconds = self.targets[batch.target].promise.seconds if batch else 60
        return time.monotonic() - worker.heard > seconds * _DEAF

    def _replace(
        self, worker: _Worker, waiting: "collections.deque[Batch]", what: str | None = None
    ) -> Fault:
        """Start another process for one that died or blocks; the rest of its batch waits."""
        batch = worker.batch
        if batch is None:
            raise RuntimeError("a process of the fuzzer ended between two batches")
        if what:
            worker.process.kill()
        worker.process.join()
        shutil.rmtree(worker.folder, ignore_errors=True)
        what = what or f"ends its process: {worker.process.exitcode}"
        name, content = input_of(batch, worker.number, self.targets)
        fault = Fault(batch.target, name, what, "", content)
        self.faults.append(fault)
        tally = self.tallies[batch.target]
        # Those before it in the batch were read too; their figures are lost with the process.
        tally.inputs += worker.number - batch.first + 1
        tally.faults += 1
        left = batch.first + batch.count - worker.number - 1
        if left:
            waiting.append(dataclasses.replace(batch, first=worker.number + 1, count=left))
        self._workers[self._workers.index(worker)] = self._start()
        return fault


def _next(waiting: "collections.deque[Batch]", batches: Iterator[Batch]) -> Batch | None:
    return waiting.popleft() if waiting else next(batches, None)
