"""The record of such a wheel: what it is, of what and with what it was built, and the proofs."""

import dataclasses
import json
import shlex
from pathlib import Path

from torchwheel.check.gates import GateResult
from torchwheel.pipeline import report
from torchwheel.pipeline.record import Record
from torchwheel.smoke.record import Imported, Machine

SCHEMA = 1


@dataclasses.dataclass(frozen=True)
class OrdinaryRecord:
    """One finished wheel.

    Attributes:
        source: file or folder name of what was built.
        source_sha256: of an archive.
        torch: the torch it was compiled with.
        toolkit: the CUDA release that compiled it; None without CUDA.
        compiler: the C++ compiler.
        jobs: compilers that were allowed side by side.
        wheel: as a run of the matrix records it.
        gates: what each gate found.
        machine: where it was imported.
        imported: what was imported there.
        borrowed: libraries it needs that torch brings.
    """

    source: str
    source_sha256: str | None
    torch: str
    toolkit: str | None
    compiler: str
    jobs: int
    wheel: Record
    gates: tuple[GateResult, ...]
    machine: Machine
    imported: tuple[Imported, ...]
    borrowed: tuple[str, ...]


def dumps(record: OrdinaryRecord) -> str:
    """JSON in a fixed order."""
    return json.dumps({"schema": SCHEMA, **dataclasses.asdict(record)}, indent=1) + "\n"


def closing_text(record: OrdinaryRecord, dist: Path) -> str:
    """The table, and the one command that installs the wheel."""
    table = report.table([record.wheel], [record.wheel.variant])
    command = shlex.join(["pip", "install", str(dist / record.wheel.file)])
    return f"{table}\n\nTo install:\n  {command}"
