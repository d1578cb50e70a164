"""One variant, from sources to a proven wheel in the output folder."""

import contextlib
import dataclasses
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from torchwheel.errors import TorchwheelError, UsageError
from torchwheel.files import explain_full_disk, move_into_place, sha256_by_name, write_text
from torchwheel.image.build import BuiltImage
from torchwheel.image.recipes import is_cross
from torchwheel.matrix.kernel_builds import KernelBuild, kernel_builds
from torchwheel.matrix.variants import Variant
from torchwheel.pipeline import in_container, on_host, records
from torchwheel.pipeline.inputs import cache_key, limits_of, newest_glibc, own_inputs
from torchwheel.pipeline.inside import JUNIT
from torchwheel.pipeline.kernel_artifacts import (
    KernelArtifact,
    KernelInputs,
    choose_artifacts,
    digests,
    kernel_inputs,
)
from torchwheel.pipeline.proof import check_gates, check_same_bytes, keep_rejected
from torchwheel.pipeline.records import BuildRecord
from torchwheel.pipeline.run import Clock, Run
from torchwheel.pipeline.sources import stage
from torchwheel.pipeline.universal import (
    build_universal,
    cpu_seconds_of_parts,
    part_key,
    with_parts_here,
)
from torchwheel.smoke import record as smoke_record
from torchwheel.smoke.results import read_report
from torchwheel.steps.compiler_cache import CacheUse

NOT_RUN = "not run: for another machine"


@dataclasses.dataclass(frozen=True)
class BuiltWheel:
    """A built wheel, before its gates.

    Attributes:
        wheel: the file.
        smoke: the record of the tests that its container ran; None where torchwheel runs them.
        cpu_seconds: CPU seconds per step of a container, or of a universal wheel per part, as far
            as they are counted.
        peak_bytes: the most memory the container had when the build ended.
        cache: what the compiler cache did for an ordinary project's build, if it was counted.
    """

    wheel: Path
    smoke: smoke_record.SmokeRecord | None
    cpu_seconds: dict[str, float] = dataclasses.field(default_factory=dict)
    peak_bytes: int | None = None
    cache: CacheUse | None = None


def build_variant(run: Run, variant: Variant) -> tuple[BuildRecord, bool]:
    """Bring `variant` up to date; returns its record, and False if it was up to date already."""
    image = in_container.built_image(run, variant)
    if variant.parts:
        variant = with_parts_here(run, variant)
    run = _with_kernels(run, variant)
    if variant.parts:
        builder = [part_key(run, part) for part in variant.parts]
    else:
        builder = ["image", image.digest] if image else on_host.compiler_facts(variant)
    key = cache_key(run, variant, builder)
    finished = records.load_finished(run.dist, variant.id, key)
    if finished:
        return finished, False
    clock = Clock()
    # Below dist, so that the last rename stays on one disk.
    scratch = run.dist / records.FOLDER
    with (
        explain_full_disk(run.dist),
        tempfile.TemporaryDirectory(prefix="making-", dir=scratch) as folder,
        clock.step("total"),
    ):
        built = _build(run, variant, image, Path(folder), clock)
        run.progress.step(f"{variant.id}: gates")
        with clock.step("gates"), keep_rejected(built.wheel, run.dist):
            glibc = newest_glibc(run, variant)
            limits = limits_of(run.matrix, run.root, variant.abi, glibc)
            gates = check_gates(built.wheel, limits)
        # A wheel that a gate rejects is not tried: its tests could fail for the same fault.
        smoke = _smoke_record(run, variant, image, built, clock)
        if run.twice and variant.native:
            with clock.step("twice"):
                _reproduce(run, variant, image, built.wheel, Path(folder))
        if smoke and not smoke.ok:
            raise TorchwheelError(f"smoke: {smoke.why}; see {run.dist / 'smoke' / variant.id}.json")
        records.forget_record(run.dist, variant.id)
        wheel = run.dist / built.wheel.name
        move_into_place(built.wheel, wheel)
    verdict = smoke.verdict if smoke else NOT_RUN
    record = dataclasses.replace(
        records.record_wheel(variant, key, wheel, gates, verdict, clock.seconds),
        built_in=image.reference if image else "host",
        cpu_seconds=built.cpu_seconds,
        peak_bytes=built.peak_bytes,
        cache=built.cache,
        built_twice=built_twice(run, variant),
        kernels=dict(digests(linked_artifacts(run))),
        bundled=sha256_by_name(run.bundled),
        sources=run.tracked,
    )
    records.save_record(run.dist, record)
    return record, True


def compiler_of(run: Run, variant: Variant) -> Sequence[str]:
    """What names the compiler of a native variant: facts of the host's, or of the image."""
    image = in_container.built_image(run, variant)
    return ["image", image.compilers] if image else on_host.compiler_facts(variant)


def inputs_of_kernels(run: Run, build: KernelBuild, variant: Variant) -> KernelInputs:
    """The inputs of a build's kernels, as `variant` links them."""
    name, compiler = run.matrix.project.name, compiler_of(run, variant)
    return kernel_inputs(build, name, run.source, compiler, own_inputs(run, variant))


def _with_kernels(run: Run, variant: Variant) -> Run:
    """The run with the compiled kernels that `variant` and its parts link.

    Raises:
        TorchwheelError: there are none that serve, and none may be compiled.
    """
    if run.kernels is None:
        return run
    linked: dict[str, tuple[KernelArtifact, ...]] = {}
    for build in kernel_builds(run.matrix, [variant]):
        for linking in build.variants:
            inputs = inputs_of_kernels(run, build, linking)
            try:
                linked[linking.id] = choose_artifacts(run.kernels, inputs)
            except UsageError:
                raise
            except TorchwheelError as error:
                if run.kernels_only:
                    raise
                run.progress.say(f"{linking.id}: {error}; now they are compiled here")
    return dataclasses.replace(run, linked=linked)


def linked_artifacts(run: Run) -> list[KernelArtifact]:
    """The kernel artifacts that a variant's run links."""
    return [artifact for artifacts in run.linked.values() for artifact in artifacts]


def built_twice(run: Run, variant: Variant) -> bool:
    """Whether a second build gives the same bytes: of linked kernels, a second compile too."""
    compiled = all(artifact.manifest.compiled_twice for artifact in linked_artifacts(run))
    return run.twice and variant.native and compiled


def _build(
    run: Run, variant: Variant, image: BuiltImage | None, out: Path, clock: Clock
) -> BuiltWheel:
    """Build `variant`; a container tries the wheel as well, if it is for this machine."""
    if variant.parts:
        wheel = build_universal(run, variant, out, clock)
        return BuiltWheel(wheel, None, cpu_seconds_of_parts(run, variant))
    if image is None or run.engine is None:
        return BuiltWheel(on_host.build_on_host(run, variant, out, clock), None)
    with clock.step("container"):
        wheel, smoke = in_container.build_in_container(run, variant, run.engine, image, out)
    folder = run.variant_folder(variant)
    cpu, peak = in_container.read_usage(folder)
    return BuiltWheel(wheel, smoke, cpu, peak, in_container.read_cache_use(folder))


def _smoke_record(
    run: Run, variant: Variant, image: BuiltImage | None, built: BuiltWheel, clock: Clock
) -> smoke_record.SmokeRecord | None:
    """The record of a wheel's smoke tests, which lies in the output folder as well.

    They run here; by emulation, if the wheel is for another machine; or ran where it was built.
    """
    if not is_cross(variant) if variant.parts else image is None:
        return on_host.smoke_on_host(run, variant, built.wheel, clock)
    smoke = built.smoke
    if smoke is None and run.engine:
        with clock.step("emulated"):
            smoke = in_container.smoke_emulated(run, variant, run.engine, built.wheel)
    if smoke and not variant.parts:
        report = run.dist / "smoke" / f"{variant.id}.json"
        write_text(report, smoke_record.dump_smoke(smoke))
        junit = run.variant_folder(variant) / JUNIT
        if smoke.sources:  # else it was imported alone
            write_text(report.with_suffix(".xml"), read_report(junit))
    return smoke


def _reproduce(
    run: Run, variant: Variant, image: BuiltImage | None, wheel: Path, out: Path
) -> None:
    """Build `variant` again, elsewhere and without caches; raise if the bytes differ."""
    second = out / "again"
    second.mkdir()
    with elsewhere(run, variant) as again:
        if variant.parts:
            rebuilt = build_universal(again, variant, second, Clock())
        elif image is None or run.engine is None:
            rebuilt = on_host.build_on_host(again, variant, second, Clock())
        else:
            rebuilt, _ = in_container.build_in_container(
                again, variant, run.engine, image, second, smoke=False
            )
    check_same_bytes(wheel, rebuilt)


@contextlib.contextmanager
def elsewhere(run: Run, variant: Variant) -> Iterator[Run]:
    """The same run with a copy of the project in another folder, and without caches."""
    with tempfile.TemporaryDirectory(prefix="torchwheel-again-") as folder:
        source = Path(folder).resolve() / "project"
        stage(run.source, source)
        # The cached folders belong to the project's folder: for this copy they are empty.
        again = dataclasses.replace(run, source=source, launcher=())
        try:
            yield again
        finally:
            shutil.rmtree(again.variant_folder(variant).parent, ignore_errors=True)
