"""One variant, from sources to a proven wheel in the output folder."""

import dataclasses
import shutil
import tempfile
from pathlib import Path

from torchwheel.check.gates import faults, passed, run_gates
from torchwheel.check.limits import Limits
from torchwheel.errors import TorchwheelError
from torchwheel.files import hashes, no_space_is_one_line, sha256, write_text
from torchwheel.image.build import Built, ensure
from torchwheel.image.of_variant import image_of
from torchwheel.matrix.resolve import Variant
from torchwheel.pipeline import emulated, in_container, on_host
from torchwheel.pipeline import record as records
from torchwheel.pipeline.clock import Clock
from torchwheel.pipeline.inside import JUNIT
from torchwheel.pipeline.record import Record
from torchwheel.pipeline.rejected import keep_rejected
from torchwheel.pipeline.reproduce import reproduce
from torchwheel.pipeline.run import Run, claims_of, key_of, newest_glibc
from torchwheel.smoke import record as smoke_record

NOT_RUN = "not run: for another machine"


@dataclasses.dataclass(frozen=True)
class Made:
    """A finished wheel that no gate has seen yet.

    Attributes:
        wheel: the file.
        smoke: the record of its tests; None if it is for another machine.
        cpu_seconds: CPU seconds per step of a container, as far as they are counted.
        peak_bytes: the most memory the container had when the build ended.
    """

    wheel: Path
    smoke: smoke_record.Record | None
    cpu_seconds: dict[str, float] = dataclasses.field(default_factory=dict)
    peak_bytes: int | None = None


def make(run: Run, variant: Variant) -> tuple[Record, bool]:
    """Bring `variant` up to date; returns its record and whether anything had to be done."""
    image = _image(run, variant)
    place = ["image", image.digest] if image else on_host.facts(variant)
    key = key_of(run, variant, place)
    done = records.finished(run.dist, variant.id, key)
    if done:
        return done, False
    clock = Clock()
    # Inside dist, so that the last rename stays on one disk.
    aside = run.dist / records.FOLDER
    with (
        no_space_is_one_line(run.dist),
        tempfile.TemporaryDirectory(prefix="making-", dir=aside) as folder,
        clock.step("total"),
    ):
        made = _make(run, variant, image, Path(folder), clock)
        tag_reason, gates = _gates(run, variant, made.wheel, clock)
        records.forget(run.dist, variant.id)
        wheel = made.wheel.replace(run.dist / made.wheel.name)
    record = Record(
        variant=variant.id,
        key=key,
        file=wheel.name,
        sha256=sha256(wheel),
        size=wheel.stat().st_size,
        archs=claims_of(variant).archs,
        tag_reason=tag_reason,
        gates=gates,
        smoke=made.smoke.verdict if made.smoke else NOT_RUN,
        seconds=clock.seconds.pop("total"),
        steps=clock.seconds,
        built_in=image.reference if image else "host",
        cpu_seconds=made.cpu_seconds,
        peak_bytes=made.peak_bytes,
        built_twice=run.twice and variant.toolkit is not None,
        companions=hashes(run.companions),
    )
    records.save(run.dist, record)
    return record, True


def _image(run: Run, variant: Variant) -> Built | None:
    """The image a native variant is built in, brought into being; None on the host."""
    if run.engine is None or variant.toolkit is None:
        return None
    return ensure(run.engine, image_of(run.matrix, variant, run.root), run.cache, run.progress)


def _make(run: Run, variant: Variant, image: Built | None, out: Path, clock: Clock) -> Made:
    """Build `variant` and try it out; a wheel whose tests fail is an error."""
    if image is None or run.engine is None:
        wheel = on_host.build(run, variant, out, clock)
        made = Made(wheel, on_host.try_out(run, variant, wheel, clock))
    else:
        with clock.step("container"):
            wheel, record = in_container.build(run, variant, run.engine, image, out)
        if record is None:
            with clock.step("emulated"):
                record = emulated.try_out(run, variant, run.engine, wheel)
        cpu, peak = in_container.used(run.kept(variant))
        made = Made(wheel, record, cpu, peak)
        if record:
            report = run.dist / "smoke" / f"{variant.id}.json"
            write_text(report, smoke_record.dumps(record))
            shutil.copyfile(run.kept(variant) / JUNIT, report.with_suffix(".xml"))
    if run.twice and variant.toolkit:
        with clock.step("twice"):
            reproduce(run, variant, image, made.wheel, out)
    if made.smoke and not made.smoke.ok:
        raise TorchwheelError(
            f"smoke: {made.smoke.why}; see {run.dist / 'smoke' / variant.id}.json"
        )
    return made


def _gates(run: Run, variant: Variant, wheel: Path, clock: Clock) -> tuple[str, int]:
    """Why the tag is what it is, and how many gates held; raises if one did not.

    A wheel that fails is kept where nothing installs it from.
    """
    run.progress.step(f"{variant.id}: gates")
    with clock.step("gates"):
        limits = Limits(run.matrix.gates.max_size_mib, newest_glibc(run, variant))
        results = run_gates(wheel, limits)
    if not passed(results):
        rejected = keep_rejected(wheel, run.dist)
        raise TorchwheelError(f"{faults(results)} (the wheel is kept as {rejected})")
    reason = next(result.says for result in results if result.name == "platform-tag")
    return reason, len(results)
