"""What a run found, as data and as JSON. Needs neither torch nor a GPU."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

TOLERANCE = 1.02
LATE = "not compiled in time"
YARDSTICKS = ("ours", "copy")

Key = tuple[str, ...]
"""Names a cell: family, operator, way, dtype, shape."""


def short(value: float) -> str:
    """Three digits, and never an exponent."""
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


@dataclass(frozen=True)
class Timing:
    """Microseconds of one call on the device, and the most memory that was allocated for it."""

    median_us: float
    low_us: float  # 10th percentile
    high_us: float  # 90th percentile
    peak_mb: float  # of one call, its inputs left out


@dataclass(frozen=True)
class Row:
    """A cell: one operator, dtype and shape, with every contestant's time.

    Attributes:
        times: by contestant; "ours", "copy" (of as many bytes) and the peers.
        failures: why a contestant has no time, or why ours is wrong.
        in_time: compared in microseconds, not as a share of the bandwidth.
        run: which entry of the record's `about` it belongs to.
    """

    family: str
    op: str
    way: str
    dtype: str
    shape: str
    bytes_moved: int
    in_time: bool
    times: Mapping[str, Timing]
    failures: Mapping[str, str] = field(default_factory=dict)
    run: int = 0

    @property
    def key(self) -> Key:
        """Names the cell."""
        return (self.family, self.op, self.way, self.dtype, self.shape)

    @property
    def peers(self) -> dict[str, Timing]:
        """The times of all others."""
        return {who: timing for who, timing in self.times.items() if who not in YARDSTICKS}

    @property
    def best_peer(self) -> str | None:
        """The fastest of them."""
        return min(self.peers, key=lambda who: self.peers[who].median_us, default=None)

    @property
    def lead(self) -> float | None:
        """How many times as fast as the best peer ours is; 0 where ours did not run."""
        if "ours" not in self.times:
            return 0.0
        if self.best_peer is None:
            return None
        return self.times[self.best_peer].median_us / self.times["ours"].median_us

    @property
    def loses(self) -> bool:
        """Whether ours is wrong, does not run, or a peer is faster beyond the noise."""
        return "ours" in self.failures or (self.lead is not None and self.lead < 1 / TOLERANCE)

    @property
    def of_its_copy(self) -> float | None:
        """Our share, in per cent, of the bandwidth of a copy of as many bytes."""
        if "copy" not in self.times or "ours" not in self.times:
            return None
        return 100 * self.times["copy"].median_us / self.times["ours"].median_us

    def percent(self, who: str, bandwidth: float) -> float:
        """Share of `bandwidth`, the large copy's, that `who` reaches."""
        return 100 * self.bytes_moved / (self.times[who].median_us * 1e-6) / bandwidth

    @property
    def complete(self) -> bool:
        """Whether nobody is missing for lack of time."""
        return LATE not in self.failures.values()


@dataclass(frozen=True)
class HostTime:
    """Microseconds of the host for one call on tiny tensors, by contestant; gelu is F.gelu."""

    family: str
    op: str
    way: str
    times_us: Mapping[str, float]
    run: int = 0

    @property
    def key(self) -> tuple[str, ...]:
        """Names the call."""
        return (self.family, self.op, self.way)

    @property
    def of_gelu(self) -> float | None:
        """Ours as a multiple of F.gelu's."""
        if not {"ours", "gelu"} <= self.times_us.keys():
            return None
        return self.times_us["ours"] / self.times_us["gelu"]


@dataclass(frozen=True)
class Record:
    """Cells of one run, or of several; `about` says of each run where and with what it was."""

    about: Sequence[Mapping[str, Any]]
    rows: Sequence[Row] = ()
    host: Sequence[HostTime] = ()

    def bandwidth(self, row: Row) -> float:
        """Bytes a second of the large copy in the row's run."""
        return float(self.about[row.run]["copy_bytes_per_second"])

    def families(self) -> list[str]:
        """In order."""
        return list(dict.fromkeys(row.family for row in self.rows))

    @property
    def lost(self) -> frozenset[Key]:
        """The cells in which a peer is ahead, or ours is wrong."""
        return frozenset(row.key for row in self.rows if row.loses)

    def of_family(self, name: str) -> "Record":
        """The part that speaks of one family."""
        return replace(
            self,
            rows=[row for row in self.rows if row.family == name],
            host=[time for time in self.host if time.family == name],
        )


def merged(records: Iterable[Record]) -> Record:
    """All cells of several records; the last one that has a cell is believed.

    Raises:
        ValueError: they are of different GPUs or versions of torch.
    """
    about: list[Mapping[str, Any]] = []
    rows: dict[Key, Row] = {}
    host: dict[tuple[str, ...], HostTime] = {}
    for record in records:
        at = len(about)
        about.extend(record.about)
        rows.update({row.key: replace(row, run=row.run + at) for row in record.rows})
        host.update({time.key: replace(time, run=time.run + at) for time in record.host})
    for fact in ("gpu", "torch"):
        found = sorted({str(run.get(fact)) for run in about})
        if len(found) > 1:
            raise ValueError(f"records to merge: expected one {fact}, found {', '.join(found)}")
    return _renumbered(Record(about, list(rows.values()), list(host.values())))


def _renumbered(record: Record) -> Record:
    """Without the runs that nothing is left of."""
    used = sorted({row.run for row in record.rows} | {time.run for time in record.host})
    place = {run: i for i, run in enumerate(used)}
    return Record(
        [record.about[run] for run in used],
        [replace(row, run=place[row.run]) for row in record.rows],
        [replace(time, run=place[time.run]) for time in record.host],
    )


def _rounded(value: object) -> object:
    if isinstance(value, float):
        return round(value, 3)
    return {k: _rounded(v) for k, v in value.items()} if isinstance(value, dict) else value


def to_json(record: Record) -> str:
    """JSON with a cell a line; what follows from the times is written too, for its readers."""
    rows = [
        asdict(row)
        | {
            "percent": {who: row.percent(who, record.bandwidth(row)) for who in row.times},
            "lead": row.lead,
            "loses": row.loses,
        }
        for row in record.rows
    ]
    parts: dict[str, list[Any]] = {
        "about": list(record.about),
        "rows": rows,
        "host": [asdict(t) for t in record.host],
    }
    lists = (
        f"{json.dumps(name)}: [\n" + ",\n".join(json.dumps(_rounded(one)) for one in part) + "\n]"
        for name, part in parts.items()
    )
    return "{" + ",\n".join(lists) + "}\n"


def from_json(text: str) -> Record:
    """The record that `to_json` wrote."""
    data = json.loads(text)
    names = {entry.name for entry in fields(Row)}
    rows = []
    for entry in data["rows"]:
        own = {name: value for name, value in entry.items() if name in names}
        own["times"] = {who: Timing(**timing) for who, timing in entry["times"].items()}
        rows.append(Row(**own))
    return Record(data["about"], rows, [HostTime(**entry) for entry in data["host"]])


def read(path: Path) -> Record:
    """The record in a file."""
    return from_json(path.read_text(encoding="utf-8"))


def write(record: Record, path: Path) -> None:
    """The record as JSON."""
    write_text(path, to_json(record))


def write_text(path: Path, text: str) -> None:
    """Aside, then renamed: what is there is whole."""
    temporary = path.with_name(f".{path.name}.temporary")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
