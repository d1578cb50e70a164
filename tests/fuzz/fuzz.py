"""Fuzzes the readers of files that others may have written: `nox -s fuzz [-- MINUTES]`.

Every input of the corpus is read first, then inputs that are mutated from it, until the minutes or
the inputs are used up. A broken promise is printed with the input's name, and the input is saved.
The exit status is 1 if a promise was broken.
"""

import argparse
import collections
import dataclasses
import datetime
import fnmatch
import hashlib
import itertools
import json
import platform
import secrets
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from fuzz_seeds import Corpus  # noqa: E402
from fuzz_targets import TARGETS, Target  # noqa: E402
from fuzz_workers import BATCH, Batch, Fault, Pool  # noqa: E402

SHOWN = 3
"""Inputs that are printed and saved for one cause."""


def main(arguments: Sequence[str]) -> int:
    """Fuzz as the arguments say."""
    options = _parser().parse_args(arguments)
    targets = {
        name: target
        for name, target in TARGETS.items()
        if any(fnmatch.fnmatch(name, pattern) for pattern in options.target or ["*"])
    }
    if not targets:
        print(f"no target has such a name; there are {', '.join(TARGETS)}")
        return 2
    if options.again:
        return read_again(targets, options.again)
    seed = options.seed if options.seed is not None else secrets.randbelow(1 << 32)
    print(f"seed {seed}, {options.jobs} processes", flush=True)
    begun, date = time.monotonic(), datetime.datetime.now(datetime.timezone.utc)
    shown = Report(options.save)
    pool = Pool(options.jobs, targets)
    try:
        pool.run(_corpus(targets), shown.say)
        until = None if options.inputs else time.monotonic() + options.minutes * 60
        pool.run(_mutated(targets, seed, options.inputs, until), shown.say)
    finally:
        pool.close()
    seconds = time.monotonic() - begun
    record = {
        "date": date.isoformat(timespec="seconds"),
        "command": f"nox -s fuzz -- {' '.join(arguments)}".rstrip(" -"),
        "seed": seed,
        "seconds": round(seconds),
        "processes": options.jobs,
        "python": platform.python_version(),
        "inputs": sum(tally.inputs for tally in pool.tallies.values()),
        "targets": {
            name: {
                **{key: _rounded(value) for key, value in dataclasses.asdict(tally).items()},
                "promised_seconds": targets[name].promise.seconds,
                "promised_mib": targets[name].promise.mib,
            }
            for name, tally in pool.tallies.items()
        },
        "faults": [
            {
                "target": fault.target,
                "input": fault.name,
                "place": fault.place,
                "fault": fault.fault,
            }
            for fault in shown.first
        ],
    }
    if options.record:
        options.record.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(_table(record["targets"]))  # type: ignore[arg-type]
    print(
        f"{record['inputs']} inputs in {seconds:.0f} s, seed {seed}: "
        f"{len(pool.faults)} broke a promise, of {len(shown.kinds)} kinds"
    )
    return int(bool(pool.faults))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="nox -s fuzz --", description=__doc__)
    parser.add_argument("minutes", nargs="?", type=float, default=0.5, help="default: 0.5")
    parser.add_argument("--inputs", type=int, help="stop after so many inputs, whatever it takes")
    parser.add_argument("--seed", type=int, help="of the mutations; drawn and printed if not given")
    parser.add_argument("--target", action="append", help="a name or a pattern; may be repeated")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default: 2)")
    parser.add_argument("--record", type=Path, help="write what was done as JSON")
    parser.add_argument(
        "--save", type=Path, default=Path("dist", "fuzz"), help="folder of broken inputs"
    )
    parser.add_argument("--again", type=Path, help="read this saved input once, and nothing else")
    return parser


class Report:
    """Prints and saves broken promises, a few of each kind."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.kinds: collections.Counter[tuple[str, ...]] = collections.Counter()
        self.first: list[Fault] = []

    def say(self, fault: Fault) -> None:
        """Print and save a broken promise, unless there were enough of its kind."""
        self.kinds[fault.kind] += 1
        if self.kinds[fault.kind] > SHOWN:
            return
        if self.kinds[fault.kind] == 1:
            self.first.append(fault)
        digest = hashlib.sha256(fault.content).hexdigest()[:12]
        path = self._folder / fault.target / digest
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(fault.content)
        place = f"{fault.place}: " if fault.place else ""
        print(f"{fault.target}: {place}{fault.fault} ({fault.name}; saved as {path})", flush=True)


def read_again(targets: Mapping[str, Target], path: Path) -> int:
    """Give a saved input to one reader, in another process, and print what came of it."""
    if len(targets) != 1:
        print("--again: expected one target, which reads the file; add --target NAME")
        return 2
    ((name, target),) = targets.items()
    again = {
        name: dataclasses.replace(
            target, corpus=lambda: Corpus({}, {}, {path.name: path.read_bytes()})
        )
    }
    pool = Pool(1, again)
    pool.run(_corpus(again), lambda fault: print(f"{fault.place}: {fault.fault}"))
    pool.close()
    print(_table({name: dataclasses.asdict(pool.tallies[name])}))
    return int(bool(pool.faults))


def _corpus(targets: Mapping[str, Target]) -> Iterator[Batch]:
    """Every input of every corpus, as it is."""
    for name, target in targets.items():
        yield from (Batch(name, number, 1, None) for number in range(len(target.corpus())))


def _mutated(
    targets: Mapping[str, Target], seed: int, inputs: int | None, until: float | None
) -> Iterator[Batch]:
    """Batches of all targets in turn, by their weights, up to a number or a time."""
    left = inputs or sys.maxsize
    for turn in itertools.count():
        for name, target in targets.items():
            if left <= 0 or (until and time.monotonic() >= until):
                return
            size = min(left, BATCH * target.weight // 10)
            left -= size
            yield Batch(name, turn * (BATCH * target.weight // 10), size, seed, until)


def _rounded(value: object) -> object:
    return round(value, 3) if isinstance(value, float) else value


def _table(targets: Mapping[str, Mapping[str, object]]) -> str:
    rows = [("target", "inputs", "refused", "s", "worst s", "worst MiB", "broken")]
    rows += [
        (
            name,
            *(str(row[key]) for key in ("inputs", "refused")),
            *(f"{row[key]:.{digits}f}" for key, digits in _FIGURES),
            str(row["faults"]),
        )
        for name, row in targets.items()
    ]
    return "\n".join(f"{row[0]:<12}" + "".join(f"{cell:>11}" for cell in row[1:]) for row in rows)


_FIGURES = (("seconds", 1), ("worst_seconds", 3), ("worst_mib", 0))

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
