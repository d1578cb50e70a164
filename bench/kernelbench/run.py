"""A run: families one after the other, until the time is up."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import fusedops
from kernelbench import ahead, record, terminal
from kernelbench.case import Case, Choice, Family
from kernelbench.measure import host_time, measure
from kernelbench.timing import Cache

# Of the time a family has, what compiling may take; and what the last cell and the end need.
COMPILE_SHARE = 0.6
LONGEST_COMPILE_S = 1200.0  # a compiler that was killed answers never
RESERVE_S = 12.0

Cells = Sequence[tuple[int, Case]]
"""Cases, each with the place of its operator in its family."""


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

    @property
    def left(self) -> float:
        """Seconds for further cells."""
        return self.deadline - RESERVE_S - time.monotonic()

    def families(self, families: Sequence[Family]) -> None:
        """Time and print them; each may take of what is left the share that its cells are."""
        cells = [[] if self.host_alone else list(self._cells(family)) for family in families]
        for at, family in enumerate(families):
            if self.left < 0:
                names = ", ".join(family.name for family in families[at:])
                print(f"{names}: left out, the time is up")
                return
            rest = sum(map(len, cells[at:]))
            self._family(family, cells[at], self.left * len(cells[at]) / max(rest, 1))

    def _family(self, family: Family, cells: Cells, seconds: float) -> None:
        without = self._compile(family, cells, min(LONGEST_COMPILE_S, COMPILE_SHARE * seconds))
        shown, peers = "", list[str]()
        for at, (_, case) in enumerate(cells):
            if self.left < 0:
                print(f"{family.name}: {len(cells) - at} cells left out, the time is up")
                break
            row = measure(family.name, case, self.cache, self.samples, without[at])
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

    def _compile(self, family: Family, cells: Cells, seconds: float) -> list[dict[str, str]]:
        """Compile peers ahead; for each cell those that must not be tried, and why."""
        jobs = [ahead.jobs_of(family.name, *cell) for cell in cells]
        every = [job for of_cell in jobs for job in of_cell]
        if not every or not self.workers:
            return [{} for _ in cells]
        begun = time.monotonic()
        missing = ahead.compile_all(every, self.workers, begun + seconds)
        took, done = time.monotonic() - begun, len(every) - len(missing)
        print(f"{family.name}: compiled {done} of {len(every)} peers in {took:.0f} s", flush=True)
        return [{job.peer: missing[job] for job in of_cell if job in missing} for of_cell in jobs]

    def _keep(self, found: record.Record) -> None:
        self.found = found
        record.write(record.merged([self.resumed, found]), self.out)
