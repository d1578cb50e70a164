"""One variant, from sources to a proven wheel in the output folder."""

import contextlib
import dataclasses
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from torchwheel.check.facts import Limits, read_facts
from torchwheel.check.gates import all_passed, faults, judge
from torchwheel.findings import CheckResult
from torchwheel.inspect.project_scripts import why_empty
from torchwheel.matrix.kernel_builds import KernelBuild, kernel_builds
from torchwheel.matrix.variants import Variant
from torchwheel.pipeline import build_records
from torchwheel.pipeline.build_records import BuildRecord
from torchwheel.pipeline.executors import (
    Compiler,
    Executor,
    compilers_in,
    executor_of,
    with_parts_here,
    with_run,
)
from torchwheel.pipeline.inputs import Clock, Run, cache_key, limits_of, newest_glibc, own_inputs
from torchwheel.pipeline.kernel_artifacts import (
    KernelArtifact,
    KernelInputs,
    choose_artifacts,
    digests,
    kernel_inputs,
)
from torchwheel.pipeline.sources import stage
from torchwheel_runtime.errors import TorchwheelError, UsageError
from torchwheel_runtime.files import (
    explain_full_disk,
    move_into_place,
    sha256,
    sha256_by_name,
    write_atomically,
)

NOT_RUN = "not run: for another machine"


def build_variant(run: Run, variant: Variant) -> tuple[BuildRecord, bool]:
    """Bring `variant` up to date; returns its record, and False if it was up to date already."""
    if variant.parts:
        variant = with_parts_here(run, variant)
    executor = executor_of(run, variant)
    run = _with_kernels(executor)
    executor = with_run(executor, run)
    key = cache_key(run, variant, executor.facts)
    finished = build_records.load_finished(run.dist, variant.id, key)
    if finished:
        return finished, False
    clock = Clock(run.progress)
    # Below dist, so that the last rename stays on one disk.
    scratch = run.dist / build_records.FOLDER
    with (
        explain_full_disk(run.dist),
        tempfile.TemporaryDirectory(prefix="making-", dir=scratch) as folder,
    ):
        built = executor.build(Path(folder), clock)
        with clock.step("gates"), keep_rejected(built.wheel, run.dist):
            glibc = newest_glibc(run, variant)
            limits = limits_of(run.matrix, run.root, variant.abi, glibc)
            gates = check_gates(built.wheel, limits, run.source if variant.ordinary else None)
        # A wheel that a gate rejects is not tried: its tests could fail for the same fault.
        smoke = executor.smoke(built, clock)
        if run.twice and variant.native:
            with clock.step("twice"):
                _reproduce(executor, built.wheel, Path(folder))
        if smoke and not smoke.ok:
            raise TorchwheelError(f"smoke: {smoke.why}; see {run.dist / 'smoke' / variant.id}.json")
        build_records.forget_record(run.dist, variant.id)
        wheel = run.dist / built.wheel.name
        move_into_place(built.wheel, wheel)
    verdict = smoke.verdict if smoke else NOT_RUN
    record = dataclasses.replace(
        build_records.record_wheel(variant, key, wheel, gates, verdict, clock),
        built_in=executor.place,
        cpu_seconds=built.cpu_seconds,
        peak_bytes=built.peak_bytes,
        cache=built.cache,
        built_twice=is_reproduced(run, variant),
        kernels=dict(digests(linked_artifacts(run))),
        bundled=sha256_by_name(run.bundled),
        sources=run.tracked,
    )
    build_records.save_record(run.dist, record)
    return record, True


def inputs_of_kernels(build: KernelBuild, compiler: Compiler) -> KernelInputs:
    """The inputs of a build's kernels, as the compiler's variant links them."""
    run, own = compiler.run, own_inputs(compiler.run, compiler.variant)
    return kernel_inputs(build, run.matrix.project.name, run.tree, compiler.compiler, own)


def _with_kernels(executor: Executor) -> Run:
    """The executor's run, with the compiled kernels that its variant and the parts link.

    Raises:
        TorchwheelError: there are none that serve, and none may be compiled.
    """
    run = executor.run
    if run.kernels is None:
        return run
    compilers = {one.variant.id: one for one in compilers_in(executor)}
    linked: dict[str, tuple[KernelArtifact, ...]] = {}
    for build in kernel_builds(run.matrix, [executor.variant]):
        for linking in build.variants:
            inputs = inputs_of_kernels(build, compilers[linking.id])
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


def is_reproduced(run: Run, variant: Variant) -> bool:
    """Whether a second build gives the same bytes: of linked kernels, a second compile too."""
    compiled = all(artifact.manifest.compiled_twice for artifact in linked_artifacts(run))
    return run.twice and variant.native and compiled


def _reproduce(executor: Executor, wheel: Path, out: Path) -> None:
    """Build a wheel again, elsewhere and without caches; raise if the bytes differ."""
    second = out / "again"
    second.mkdir()
    with elsewhere(executor.run, executor.variant) as again:
        rebuilt = with_run(executor, again).build(second, Clock(), tests=False)
    check_same_bytes(wheel, rebuilt.wheel)


@contextlib.contextmanager
def elsewhere(run: Run, variant: Variant) -> Iterator[Run]:
    """The same run with a copy of the project in another folder, and without caches."""
    with tempfile.TemporaryDirectory(prefix="torchwheel-again-") as folder:
        source = stage(run.source, Path(folder).resolve() / "project", tree=run.tree)
        # The cached folders belong to the project's folder: for this copy they are empty.
        again = dataclasses.replace(run, source=source, launcher=())
        try:
            yield again
        finally:
            shutil.rmtree(again.variant_folder(variant).parent, ignore_errors=True)


def check_gates(
    wheel: Path, limits: Limits, project: Path | None = None
) -> tuple[CheckResult, ...]:
    """The results of all gates; an error if one does not hold.

    `project` has the build scripts that tell why an ordinary project's wheel may have no kernels.
    """
    facts = read_facts(wheel)
    results = judge(facts, limits)
    if not all_passed(results):
        empty = facts.gpu_code.value is not None and not any(facts.gpu_code.value.values())
        expected = any(result.name == "archs" and not result.ok for result in results)
        cause = f"{why_empty(project)}; " if project and empty and expected else ""
        raise TorchwheelError(f"{cause}{faults(results)}")
    return results


@contextlib.contextmanager
def keep_rejected(wheel: Path, dist: Path) -> Iterator[None]:
    """Copy a wheel into `dist`/rejected if its proof fails, and name the copy in the error.

    The copy has a name that pip does not install.
    """
    try:
        yield
    except TorchwheelError as error:
        rejected = dist / "rejected" / f"{wheel.name}.rejected"
        with write_atomically(rejected) as temporary:
            shutil.copyfile(wheel, temporary)
        raise TorchwheelError(f"{error} (the wheel is kept as {rejected})") from error


def check_same_bytes(first: Path, second: Path) -> None:
    """Raise if two builds of a variant differ; the error names the first difference."""
    if sha256(first) != sha256(second):
        raise TorchwheelError(f"not reproducible: {_difference(first, second)}")


def _difference(first: Path, second: Path) -> str:
    """Where two wheels differ: in their names, or the first member with other bytes."""
    if first.name != second.name:
        return f"the second build is named {second.name}, not {first.name}"
    with zipfile.ZipFile(first) as left, zipfile.ZipFile(second) as right:
        names = sorted({*left.namelist(), *right.namelist()}, key=lambda n: (".dist-info/" in n, n))
        for name in names:
            if name not in left.namelist() or name not in right.namelist():
                return f"{name} is in one of two builds of {first.name} only"
            if left.read(name) != right.read(name):
                return f"{name} differs between two builds of {first.name}"
    return f"two builds of {first.name} pack the same files differently"
