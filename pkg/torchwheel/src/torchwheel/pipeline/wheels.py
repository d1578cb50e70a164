"""`torchwheel wheels`: builds variants of a matrix into proven wheels and their index."""

import contextlib
import dataclasses
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from torchwheel.compilers.compiler_cache import own_server
from torchwheel.image.engine import Engine, reap_containers
from torchwheel.index.front import install_command
from torchwheel.index.groups import groups_of
from torchwheel.index.listing import Index, all_groups
from torchwheel.index.writer import IndexedWheel, build_index
from torchwheel.inspect.wheel import read_wheel
from torchwheel.matrix.load import load
from torchwheel.matrix.rules import findings
from torchwheel.matrix.sections import Matrix, ToolkitSection
from torchwheel.matrix.variants import Variant, select
from torchwheel.pipeline import build_records
from torchwheel.pipeline.before_images import ready_engine
from torchwheel.pipeline.build_records import BuildCall, BuildRecord, WheelsRequest
from torchwheel.pipeline.bundled import build_bundled
from torchwheel.pipeline.executors import tasks_of
from torchwheel.pipeline.frontend import find_launcher
from torchwheel.pipeline.inputs import Run
from torchwheel.pipeline.on_host import container_reason
from torchwheel.pipeline.schedule import (
    Outcome,
    chains_of,
    jobs_each,
    parts_each,
    side_by_side,
    slots,
    stopped_lines,
)
from torchwheel.pipeline.sources import project_folder, source_digest
from torchwheel.pipeline.variant import build_variant
from torchwheel_runtime.actions_log import is_in_actions
from torchwheel_runtime.arch import lists
from torchwheel_runtime.arch.devices import visible_gpus
from torchwheel_runtime.arch.model import Arch, parse
from torchwheel_runtime.builder.ninja import BYTES_PER_COMPILER, parallel_jobs
from torchwheel_runtime.console import Progress, print_error
from torchwheel_runtime.errors import TorchwheelError, UsageError
from torchwheel_runtime.files import remove_leftovers, sha256_by_name, write_text
from torchwheel_runtime.lock import hold_lock, say_waiting
from torchwheel_runtime.tasks import ENDING
from torchwheel_runtime.toolkit.cache import cache_folder


def wheels(request: WheelsRequest, progress: Progress) -> tuple[str, int]:
    """Build, repair, check, smoke-test and index the variants `request` names.

    Returns:
        The closing text and the exit status: 1 if a variant failed; the others are finished.
    """
    names = request.variants or ("default",)
    matrix = load(request.matrix)
    variants = select(matrix, names)
    if request.archs:
        matrix = with_archs(matrix, variants, request.archs)
        variants = select(matrix, names)
    engine = engine_for(request, matrix, variants, progress, ("cibuildwheel",))
    for variant in variants:
        if reason := container_reason(variant, engine):
            raise UsageError(
                f"{variant.id}: {reason} is built in a container only: add --container"
            )
    # Path.resolve raises a RuntimeError for a ring of links.
    dist = Path(os.path.realpath(request.dist))
    (dist / build_records.FOLDER).mkdir(parents=True, exist_ok=True)
    at_once = request.at_once or slots(len(chains_of(variants)))
    jobs = jobs_each(variants, at_once, jobs_of(variants))
    busy = say_waiting(progress.say, f"another run writes to {dist}")
    with hold_lock(dist / build_records.FOLDER / "lock", busy):
        _remove_leftovers(dist)
        build_records.save_request(dist, request.selection)
        run = open_run(request, matrix, dist, engine, progress)
        run = dataclasses.replace(
            run,
            sources=source_digest(run.source, tree=run.tree),
            jobs=jobs,
            parts_at_once=parts_each(variants, at_once, jobs, most=request.at_once),
            twice=request.twice and can_build_twice(matrix),
            bundled=build_bundled(run.root, matrix.project.bundled, dist, progress),
            tracked=source_digest(run.source, tree=run.tree, tracked=True),
            kernels=Path(os.path.realpath(request.kernels)) if request.kernels else None,
            kernels_only=request.kernels_only,
            locked=request.locked,
        )
        with at_work(run) as run:
            return _build_all(run, variants, at_once)


def _build_all(run: Run, variants: Sequence[Variant], at_once: int) -> tuple[str, int]:
    states = {variant.id: "not begun" for variant in variants}

    def work(variant: Variant) -> tuple[BuildRecord, bool]:
        states[variant.id] = "stopped"
        try:
            with run.progress.task(variant.id) as task:
                record, fresh = build_variant(run, variant)
                task.result = record.file if fresh else "nothing to do"
        except TorchwheelError:
            states[variant.id] = "stopped" if ENDING.is_set() else "failed"
            raise
        states[variant.id] = "finished"
        return record, fresh

    for variant in variants:
        took = build_records.last_seconds(run.dist, variant.id)
        run.progress.plan({(variant.id, name): took.get(name) for name in tasks_of(run, variant)})
    try:
        outcomes = side_by_side(variants, work, at_once)
    except KeyboardInterrupt as stop:
        stop.args = (*stop.args, *stopped_lines(states))
        raise
    finished = [outcome.record for outcome in outcomes if outcome.record]
    failed = {outcome.variant.id: outcome.error for outcome in outcomes if outcome.error}
    index = run.dist / "index"
    offered = index_wheels(run, index)
    write_text(run.dist / "report.json", report_json(outcomes))
    parts = []
    if finished:
        fresh = [outcome.variant.id for outcome in outcomes if outcome.fresh]
        parts.append(build_records.report_table(finished, fresh))
    if failed:
        lines = [f"failed: {name}: {error}" for name, error in failed.items()]
        lines += [
            f"{run.dist}: {record.file} is of an earlier source"
            for record in build_records.all_records(run.dist)
            if record.variant in failed
        ]
        parts.append("\n".join(lines))
        if is_in_actions():
            for name, error in failed.items():
                print_error(f"{name}: {error}", failed=True)
    elif finished:
        commands = _install_commands(finished, offered, index)
        parts.append("\n  ".join(["To install:", *commands]))
    return "\n\n".join(parts), int(bool(failed))


def engine_for(
    request: BuildCall,
    matrix: Matrix,
    variants: Sequence[Variant],
    progress: Progress,
    modules: Sequence[str] = (),
) -> Engine | None:
    """What runs the containers of a call, ready for its variants; None to build on this machine."""
    # The torch and the toolkit of an ordinary project's own build are in a container alone.
    if not request.container and matrix.abis.ordinary is None:
        return None
    builds = [build for variant in variants for build in variant.builds]
    root = request.matrix.resolve().parent
    return ready_engine(matrix, builds, root, cache_folder(), progress, modules)


def open_run(
    request: BuildCall, matrix: Matrix, dist: Path, engine: Engine | None, progress: Progress
) -> Run:
    """The run of a call that writes to `dist`; fetches the project's sources.

    It compiles with the launcher of this machine, or with the one that every image has.
    """
    root, cache = request.matrix.resolve().parent, cache_folder()
    launcher: tuple[str, ...] = ()
    if request.launcher:
        launcher = ("sccache",) if engine else find_launcher(progress.say)
    return Run(
        matrix=matrix,
        root=root,
        source=project_folder(matrix, root, cache, progress),
        dist=dist,
        cache=cache,
        sources="",
        launcher=launcher,
        progress=progress,
        engine=engine,
    )


@contextlib.contextmanager
def at_work(run: Run) -> Iterator[Run]:
    """The run with a server of its launcher; its containers, which start their own, end with it."""
    if run.engine:
        with reap_containers(run.engine, run.id):
            yield run
    else:
        with own_server(run.launcher, {}, "the compiler cache") as server:
            yield dataclasses.replace(run, server=server)


def jobs_of(variants: Sequence[Variant]) -> int:
    """The compilers that may run side by side."""
    if any(variant.ordinary for variant in variants):
        return parallel_jobs(bytes_per_job=BYTES_PER_COMPILER)
    return parallel_jobs()


def _archs_for(archs: Sequence[str], toolkit: ToolkitSection) -> tuple[Arch, ...]:
    """The archs of the command line that are for a toolkit's backend."""
    own = [arch for arch in archs if arch.startswith("gfx") == (toolkit.backend == "rocm")]
    if toolkit.backend == "rocm" or not own:
        try:
            return tuple(map(parse, own))
        except ValueError as error:
            raise UsageError(f"--archs: {error}") from None
    selection = lists.parse_arch_list(
        ";".join(own), toolkit.release, lambda: visible_gpus("cuda"), "--archs"
    )
    return selection.require_all("--archs")


def with_archs(matrix: Matrix, variants: Sequence[Variant], archs: Sequence[str]) -> Matrix:
    """The matrix with another arch list for the variants' toolkits; its rules must still hold."""
    builds = (build for variant in variants for build in variant.builds)
    names = {build.toolkit.name for build in builds if build.toolkit}
    new = {name: _archs_for(archs, matrix.toolkits[name]) for name in sorted(names)}
    if not any(new.values()):
        raise UsageError(
            f"--archs: {' '.join(archs)}: no variant that is asked for is built for such a GPU"
        )
    toolkits = {
        name: section.model_copy(update={"archs": new[name]}) if new.get(name) else section
        for name, section in matrix.toolkits.items()
    }
    changed = matrix.model_copy(update={"toolkits": toolkits})
    if problems := findings(changed):
        raise UsageError(f"--archs: {problems[0][1]}")
    return changed


def _remove_leftovers(dist: Path) -> None:
    """Remove the temporary files of killed runs; the lock is held, so no other run uses them."""
    for scratch in (dist / build_records.FOLDER).glob("making-*"):
        shutil.rmtree(scratch, ignore_errors=True)
    for folder in (dist, dist / build_records.FOLDER, dist / "smoke"):
        remove_leftovers(folder)


def can_build_twice(matrix: Matrix) -> bool:
    """Whether a second build must give the same bytes.

    The build of an ordinary project is its author's: few give equal bytes, and many take hours.
    """
    return matrix.gates.reproducible or matrix.abis.ordinary is None


def _install_commands(finished: Sequence[BuildRecord], offered: Index, index: Path) -> list[str]:
    """A command for each version, whose wheels pip chooses among: of one with GPU code, if any."""
    names = {record.file for record in finished}
    files = [
        file
        for of_project in offered.whole.projects.values()
        for file in of_project
        if file.wheel.file in names
    ]
    commands = {}
    for file in sorted(files, key=lambda file: bool(file.toolkits)):
        group, wanted = offered.group_for(file), f"{file.wheel.project}=={file.version}"
        place = (index / group.name).resolve().as_uri()
        commands[wanted] = install_command(place, wanted, group.missing(file))
    return list(commands.values())


def report_json(outcomes: Sequence[Outcome]) -> str:
    """Every variant of a run: its record, or the error."""
    rows = [
        {
            "variant": outcome.variant.id,
            "fresh": outcome.fresh,
            "error": outcome.error,
            "record": dataclasses.asdict(outcome.record) if outcome.record else None,
        }
        for outcome in outcomes
    ]
    return json.dumps({"schema": 1, "variants": rows}, indent=1) + "\n"


def index_wheels(run: Run, index: Path) -> Index:
    """Replace `index`, and return it.

    It leaves out wheels that were tried with other bundled packages than the present ones.
    """
    tried_with = sha256_by_name(run.bundled)
    offered = [
        read_wheel(run.dist / record.file)
        for record in build_records.all_records(run.dist)
        if record.bundled == tried_with
    ]
    claimed = [(wheel, wheel.claims) for wheel in offered if wheel.claims]
    groups = groups_of([claims for _, claims in claimed])
    indexed = [
        IndexedWheel(wheel.path, own, read=wheel)
        for (wheel, _), own in zip(claimed, groups, strict=True)
    ]
    indexed += [IndexedWheel(path, all_groups(groups)) for path in run.bundled]
    return build_index(indexed, index)
