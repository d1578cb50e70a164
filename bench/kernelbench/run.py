"""A run: families one after the other, until the time is up."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import fusedops
from kernelbench import ahead, record, terminal
from kernelbench.case import Case, Choice, Family
from kernelbench.measure import host_time, measure
from kernelbench.timing import Cache

# Of the time of the run, what compiling may take; and what the last cell and the end need.
COMPILE_SHARE = 0.6
LONGEST_COMPILE_S = 1200.0  # a compiler that was killed answers never
RESERVE_S = 12.0

Cells = Sequence[tuple[int, Case]]
"""Cases, each with the place of its operator in its family."""
Without = Mapping[str, str]
"""Peers of a cell that must not be tried, and why."""


@dataclass
class Run:
    """A run under way.

    Attributes:
        choice: which cells.
        samples: of each contestant.
        workers: processes that compile ahead.
        out: where the record goes, after every cell.
        resumed: what an earlier run found.
        behind: no cells but these; None for all.
        found: what this one found; its only `about` entry is there from the start.
        deadline: of time.monotonic.
        colour: lost cells are red.
        cache: the GPU's.
        lock: a file; who has it measures.
    """

    choice: Choice
    samples: int
    workers: int
    out: Path
    resumed: record.Record
    behind: frozenset[record.Key] | None
    host_alone: bool
    found: record.Record
    deadline: float
    colour: bool
    cache: Cache
    lock: Path

    @property
    def left(self) -> float:
        """Seconds for further cells."""
        return self.deadline - RESERVE_S - time.monotonic()

    def families(self, families: Sequence[Family]) -> None:
        """Compile their peers, then time and print them."""
        cells = {f.name: [] if self.host_alone else list(self._cells(f)) for f in families}
        without = self._compile(cells)
        for at, family in enumerate(families):
            if self.left < 0:
                names = ", ".join(family.name for family in families[at:])
                print(f"{names}: left out, the time is up")
                return
            self._family(family, cells[family.name], without[family.name])

    def _family(self, family: Family, cells: Cells, without: Sequence[Without]) -> None:
        shown, peers = "", list[str]()
        for at, (_, case) in enumerate(cells):
            if self.left < 0:
                print(f"{family.name}: {len(cells) - at} cells left out, the time is up")
                break
            row = measure(family.name, case, self.cache, self.samples, without[at], self.lock)
            self._keep(replace(self.found, rows=[*self.found.rows, row]))
            if terminal.title(row) != shown:
                shown, peers = terminal.title(row), terminal.peers_of(row)
                print(terminal.head(family.name, row, peers))
            print(terminal.line(row, self.found.bandwidth(row), peers, self.colour), flush=True)
        places = dict.fromkeys(place for place, _ in cells)
        operators = family.operators if self.host_alone else [family.operators[p] for p in places]
        if operators:
            hosts = [host_time(family.name, operator.smallest) for operator in operators]
            self._keep(replace(self.found, host=[*self.found.host, *hosts]))
            print(*terminal.host_table(hosts), sep="\n", flush=True)

    def _cells(self, family: Family) -> Iterator[tuple[int, Case]]:
        done = {row.key for row in self.resumed.rows if row.complete}
        for place, operator in enumerate(family.operators):
            if not hasattr(fusedops, operator.name):
                print(f"{family.name}: skipped, fusedops has no {operator.name}")
                continue
            for case in operator.cases(self.choice):
                key = (family.name, case.op, case.way, case.dtype_name, case.shape_name)
                if key not in done and (self.behind is None or key in self.behind):
                    yield place, case

    def _compile(self, cells: Mapping[str, Cells]) -> Mapping[str, Sequence[Without]]:
        """Compile peers ahead, by one set of processes, as they take long to start."""
        jobs = {name: ahead.jobs_of(name, of_family) for name, of_family in cells.items()}
        every = [job for of_family in jobs.values() for of_cell in of_family for job in of_cell]
        missing = dict[ahead.Job, str]()
        if every and self.workers:
            begun = time.monotonic()
            seconds = min(LONGEST_COMPILE_S, COMPILE_SHARE * self.left)
            missing = ahead.compile_all(every, self.workers, begun + seconds, self.lock)
            took, done = time.monotonic() - begun, len(every) - len(missing)
            print(f"compiled {done} of {len(every)} peers in {took:.0f} s", flush=True)
        return {
            name: [{job.peer: missing[job] for job in cell if job in missing} for cell in of_family]
            for name, of_family in jobs.items()
        }

    def _keep(self, found: record.Record) -> None:
        self.found = found
        record.write(record.merged([self.resumed, found]), self.out)
