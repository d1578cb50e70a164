"""From what a smoke run printed and wrote to its record."""

import dataclasses
import datetime
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from torchwheel import files
from torchwheel.errors import TorchwheelError
from torchwheel.smoke import junit
from torchwheel.smoke.record import Gpu, Imported, Machine, Record, TestResult, judge


def read_probe(output: str, site: Path | None = None) -> tuple[Machine, tuple[Imported, ...]]:
    """What probe.py printed.

    Args:
        output: its output; the facts are the last line.
        site: the folder the packages must come from; the interpreter's own site-packages if none.

    Raises:
        ValueError, LookupError, TypeError: it printed no facts.
    """
    facts = json.loads(output.splitlines()[-1])
    data = facts["machine"]
    machine = Machine(**{**data, "gpu": Gpu(**data["gpu"]) if data["gpu"] else None})
    place = site or Path(facts["site"])
    return machine, tuple(_in_site(entry, place) for entry in facts["imported"])


def record_of(
    wheel: Path,
    companions: Iterable[Path],
    machine: Machine,
    imported: tuple[Imported, ...],
    tests: tuple[TestResult, ...],
    status: int,
) -> Record:
    """The record of a run that ended now; `status` is pytest's exit status."""
    verdict, why = judge(machine, imported, tests, status)
    return Record(
        wheel=wheel.name,
        sha256=files.sha256(wheel),
        size=wheel.stat().st_size,
        date=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        machine=machine,
        imported=imported,
        tests=tests,
        verdict=verdict,
        why=why,
        companions=files.hashes(companions),
    )


def from_files(
    wheel: Path, companions: Iterable[Path], probe: Path, report: Path, status: int
) -> Record:
    """The record of a run in a container, from the probe's output and pytest's JUnit file."""
    try:
        machine, imported = read_probe(probe.read_text(encoding="utf-8"))
        tests = junit.parse(report.read_text(encoding="utf-8"))
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise TorchwheelError(f"{wheel.name}: its tests left no report: {error}") from error
    return record_of(wheel, companions, machine, imported or (_nothing(),), tests, status)


def _nothing() -> Imported:
    return Imported("the wheel's packages", None, "there is none to import")


def _in_site(entry: Mapping[str, Any], site: Path) -> Imported:
    found = Imported(**entry)
    if found.error or found.file is None:
        return dataclasses.replace(found, error=found.error or "it has no file")
    path = Path(found.file).resolve()
    if not path.is_relative_to(site.resolve()):
        return dataclasses.replace(found, error=f"came from {path}, not from the installed wheel")
    return dataclasses.replace(found, file=path.relative_to(site.resolve()).as_posix())
