"""One variant, from sources to a proven wheel in the output folder."""

import dataclasses
import shutil
import tempfile
import zipfile
from pathlib import Path

from torchwheel.check.facts import Limits
from torchwheel.check.gates import all_passed, faults, run_gates
from torchwheel.errors import TorchwheelError
from torchwheel.files import explain_full_disk, sha256, sha256_by_name, write_text
from torchwheel.image.build import Built, ensure
from torchwheel.image.recipes import image_of
from torchwheel.matrix.variants import Variant
from torchwheel.pipeline import in_container, on_host, records
from torchwheel.pipeline.inside import JUNIT
from torchwheel.pipeline.records import BuildRecord, keep_rejected
from torchwheel.pipeline.run import Clock, Run, claims_of, key_of, newest_glibc
from torchwheel.pipeline.sources import stage
from torchwheel.smoke import record as smoke_record


def reproduce(run: Run, variant: Variant, image: Built | None, wheel: Path, out: Path) -> None:
    """Raise if a second build of `variant` differs from `wheel`; `out` is a scratch folder."""
    with tempfile.TemporaryDirectory(prefix="torchwheel-again-") as folder:
        root = Path(folder).resolve()
        stage(run.source, root / run.matrix.project.source)
        # What is kept between builds is kept by the project's folder: here, nothing.
        again = dataclasses.replace(run, root=root, launcher=())
        second = out / "again"
        second.mkdir()
        try:
            if image is None or run.engine is None:
                found = on_host.build(again, variant, second, Clock())
            else:
                found, _ = in_container.build_in_container(
                    again, variant, run.engine, image, second, tried=False
                )
        finally:
            shutil.rmtree(again.kept(variant).parent, ignore_errors=True)
        if sha256(found) != sha256(wheel):
            raise TorchwheelError(f"not reproducible: {_difference(wheel, found)}")


def _difference(first: Path, second: Path) -> str:
    """Where two wheels differ: their names, or the first member that is not the same."""
    if first.name != second.name:
        return f"the second build is named {second.name}, not {first.name}"
    with zipfile.ZipFile(first) as one, zipfile.ZipFile(second) as other:
        names = sorted({*one.namelist(), *other.namelist()}, key=lambda n: (".dist-info/" in n, n))
        for name in names:
            if name not in one.namelist() or name not in other.namelist():
                return f"{name} is in one of two builds of {first.name} only"
            if one.read(name) != other.read(name):
                return f"{name} differs between two builds of {first.name}"
    return f"two builds of {first.name} pack the same files differently"


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
    smoke: smoke_record.SmokeRecord | None
    cpu_seconds: dict[str, float] = dataclasses.field(default_factory=dict)
    peak_bytes: int | None = None


def make(run: Run, variant: Variant) -> tuple[BuildRecord, bool]:
    """Bring `variant` up to date; returns its record and whether anything had to be done."""
    image = _image(run, variant)
    place = ["image", image.digest] if image else on_host.facts(variant)
    key = key_of(run, variant, place)
    done = records.load_finished(run.dist, variant.id, key)
    if done:
        return done, False
    clock = Clock()
    # Inside dist, so that the last rename stays on one disk.
    aside = run.dist / records.FOLDER
    with (
        explain_full_disk(run.dist),
        tempfile.TemporaryDirectory(prefix="making-", dir=aside) as folder,
        clock.step("total"),
    ):
        made = _make(run, variant, image, Path(folder), clock)
        tag_reason, gates = _gates(run, variant, made.wheel, clock)
        records.forget_record(run.dist, variant.id)
        wheel = made.wheel.replace(run.dist / made.wheel.name)
    record = BuildRecord(
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
        bundled=sha256_by_name(run.bundled),
    )
    records.save_record(run.dist, record)
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
            wheel, record = in_container.build_in_container(run, variant, run.engine, image, out)
        if record is None:
            with clock.step("emulated"):
                record = in_container.try_emulated(run, variant, run.engine, wheel)
        cpu, peak = in_container.read_usage(run.kept(variant))
        made = Made(wheel, record, cpu, peak)
        if record:
            report = run.dist / "smoke" / f"{variant.id}.json"
            write_text(report, smoke_record.dump_smoke(record))
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
    if not all_passed(results):
        rejected = keep_rejected(wheel, run.dist)
        raise TorchwheelError(f"{faults(results)} (the wheel is kept as {rejected})")
    reason = next(result.says for result in results if result.name == "platform-tag")
    return reason, len(results)
