"""From a project that is not ours to a proven wheel in the output folder."""

import shutil
from pathlib import Path

from torchwheel.check.limits import Limits
from torchwheel.console import Progress
from torchwheel.errors import TorchwheelError
from torchwheel.files import sha256, write_text, written_aside
from torchwheel.pipeline.clock import Clock
from torchwheel.pipeline.ordinary.folder import alone_in
from torchwheel.pipeline.ordinary.prepare import Prepared, prepare
from torchwheel.pipeline.ordinary.prove import Proof, prove
from torchwheel.pipeline.ordinary.record import OrdinaryRecord, dumps
from torchwheel.pipeline.ordinary.request import Request, check
from torchwheel.pipeline.ordinary.wheel import make_wheel
from torchwheel.pipeline.record import Record
from torchwheel.pipeline.rejected import keep_rejected


def make(request: Request, cache: Path, progress: Progress) -> OrdinaryRecord:
    """Build, repair, stamp, judge and try a wheel; it and its record are then in `dist`."""
    check(request)
    clock = Clock()
    with alone_in(cache / "build" / f"ordinary-{request.key()}", progress) as folder:
        with clock.step("total"):
            prepared = prepare(request, folder, cache, progress, clock)
            wheel = make_wheel(request, prepared, folder, progress, clock)
            proof = _proof(request, prepared, wheel, folder, progress, clock)
        record = _record(request, prepared, wheel, proof, clock)
        write_text(request.dist / f"{wheel.name}.json", dumps(record))
        with written_aside(request.dist / wheel.name) as aside:
            shutil.copyfile(wheel, aside)
    return record


def _proof(
    request: Request,
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
    request: Request, prepared: Prepared, wheel: Path, proof: Proof, clock: Clock
) -> OrdinaryRecord:
    target, host, steps = prepared.target, prepared.host, dict(clock.seconds)
    return OrdinaryRecord(
        source=request.source.name,
        source_sha256=sha256(request.source) if request.source.is_file() else None,
        torch=target.torch.built.version,
        toolkit=target.toolkit.version if target.toolkit else None,
        compiler=f"{host.family} {host.version}",
        jobs=prepared.jobs,
        wheel=Record(
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
