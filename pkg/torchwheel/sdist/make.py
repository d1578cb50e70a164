"""`torchwheel build`: from an sdist to a proven wheel and its record."""

import dataclasses
import json
import shlex
import shutil
from pathlib import Path

from torchwheel.check.facts import Limits
from torchwheel.check.gates import GateResult
from torchwheel.console import Progress
from torchwheel.errors import TorchwheelError
from torchwheel.files import sha256, write_atomically, write_text
from torchwheel.pipeline import report
from torchwheel.pipeline.records import BuildRecord, keep_rejected
from torchwheel.pipeline.run import Clock
from torchwheel.sdist.prepare import Prepared, prepare
from torchwheel.sdist.request import SdistRequest, alone_in, check_request
from torchwheel.sdist.wheel import Proof, make_wheel, prove
from torchwheel.smoke.record import Imported, MachineRecord

SCHEMA = 1


@dataclasses.dataclass(frozen=True)
class SdistRecord:
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
    wheel: BuildRecord
    gates: tuple[GateResult, ...]
    machine: MachineRecord
    imported: tuple[Imported, ...]
    borrowed: tuple[str, ...]


def dump_record(record: SdistRecord) -> str:
    """JSON in a fixed order."""
    return json.dumps({"schema": SCHEMA, **dataclasses.asdict(record)}, indent=1) + "\n"


def closing_text(record: SdistRecord, dist: Path) -> str:
    """The table, and the one command that installs the wheel."""
    table = report.report_table([record.wheel], [record.wheel.variant])
    command = shlex.join(["pip", "install", str(dist / record.wheel.file)])
    return f"{table}\n\nTo install:\n  {command}"


def make(request: SdistRequest, cache: Path, progress: Progress) -> SdistRecord:
    """Build, repair, stamp, judge and try a wheel; it and its record are then in `dist`."""
    check_request(request)
    clock = Clock()
    with alone_in(cache / "build" / f"ordinary-{request.key()}", progress) as folder:
        with clock.step("total"):
            prepared = prepare(request, folder, cache, progress, clock)
            wheel = make_wheel(request, prepared, folder, progress, clock)
            proof = _proof(request, prepared, wheel, folder, progress, clock)
        record = _record(request, prepared, wheel, proof, clock)
        write_text(request.dist / f"{wheel.name}.json", dump_record(record))
        with write_atomically(request.dist / wheel.name) as aside:
            shutil.copyfile(wheel, aside)
    return record


def _proof(
    request: SdistRequest,
    prepared: Prepared,
    wheel: Path,
    folder: Path,
    progress: Progress,
    clock: Clock,
) -> Proof:
    progress.step(f"gates and import of {wheel.name}")
    place = folder / "proof"
    place.mkdir()
    try:
        with clock.step("proof"):
            return prove(
                wheel,
                limits=Limits(request.max_size_mib),
                names=request.imports,
                torch=prepared.target.torch,
                base=prepared.base,
                folder=place,
            )
    except TorchwheelError as error:
        rejected = keep_rejected(wheel, request.dist)
        raise TorchwheelError(f"{error} (the wheel is kept as {rejected})") from error


def _record(
    request: SdistRequest, prepared: Prepared, wheel: Path, proof: Proof, clock: Clock
) -> SdistRecord:
    target, host, steps = prepared.target, prepared.host, dict(clock.seconds)
    return SdistRecord(
        source=request.source.name,
        source_sha256=sha256(request.source) if request.source.is_file() else None,
        torch=target.torch.built.version,
        toolkit=target.toolkit.version if target.toolkit else None,
        compiler=f"{host.family} {host.version}",
        jobs=prepared.jobs,
        wheel=BuildRecord(
            variant=target.variant,
            key=request.key(),
            file=wheel.name,
            sha256=sha256(wheel),
            size=wheel.stat().st_size,
            archs=target.toolkit.archs if target.toolkit else (),
            tag_reason=next(gate.says for gate in proof.gates if gate.name == "platform-tag"),
            gates=len(proof.gates),
            smoke="imported",
            seconds=steps.pop("total"),
            steps=steps,
        ),
        gates=proof.gates,
        machine=proof.machine,
        imported=proof.imported,
        borrowed=proof.borrowed,
    )
