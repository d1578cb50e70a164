"""The main job: variants of a matrix in, proven wheels and an index out."""

import contextlib
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from torchwheel.arch import lists
from torchwheel.arch.compilers import Compiler
from torchwheel.arch.devices import visible_gpus
from torchwheel.builder.build import parallel_jobs
from torchwheel.console import Progress
from torchwheel.errors import TorchwheelError, UsageError
from torchwheel.files import remove_leftovers, write_text
from torchwheel.image.engine import find_engine
from torchwheel.image.reaper import reaping
from torchwheel.lock import hold_lock, say_waiting
from torchwheel.matrix.load import load
from torchwheel.matrix.rules import findings
from torchwheel.matrix.sections import Matrix, ToolkitSection
from torchwheel.matrix.variants import Variant, select
from torchwheel.pipeline import on_host, records, report
from torchwheel.pipeline import records as requests
from torchwheel.pipeline import variant as one
from torchwheel.pipeline.bundled import build_bundled
from torchwheel.pipeline.frontend import find_launcher
from torchwheel.pipeline.records import BuildRecord, WheelsRequest
from torchwheel.pipeline.report import index_wheels, install_command
from torchwheel.pipeline.run import Run
from torchwheel.pipeline.schedule import jobs_each, side_by_side, slots
from torchwheel.pipeline.sources import source_digest
from torchwheel.toolkit.cache import cache_folder


def wheels(
    matrix_file: Path,
    request: WheelsRequest,
    dist: Path,
    progress: Progress,
    *,
    launcher: bool = True,
    at_once: int | None = None,
    twice: bool = False,
) -> tuple[str, int]:
    """Build, repair, check, smoke-test and index the variants `request` names.

    Args:
        matrix_file: the matrix.
        request: selections, variant ids or patterns, another arch list, host or container.
        dist: the output folder.
        progress: where to say what is being done.
        launcher: whether sccache may be used where it is found.
        at_once: variants in work at a time; as many as cores and memory allow if none is given.
        twice: whether each native variant must come out the same when it is built again.

    Returns:
        The closing text and the exit status: 1 if a variant failed, the others being kept.
    """
    wanted = request.variants or ("default",)
    matrix = load(matrix_file)
    matrix = _narrowed(matrix, select(matrix, wanted), request.archs)
    variants = select(matrix, wanted)
    engine = find_engine() if request.container else None
    if engine is None:
        for variant in variants:
            on_host.check_buildable(variant)
    dist = dist.resolve()
    (dist / records.FOLDER).mkdir(parents=True, exist_ok=True)
    root = matrix_file.resolve().parent
    at_once = at_once or slots(len(variants))
    busy = say_waiting(progress.say, f"another run writes to {dist}")
    with hold_lock(dist / records.FOLDER / "lock", busy):
        _sweep(dist)
        requests.save_request(dist, request)
        run = Run(
            matrix=matrix,
            root=root,
            dist=dist,
            cache=cache_folder(),
            sources=source_digest((root / matrix.project.source).resolve()),
            launcher=find_launcher() if launcher else (),
            progress=progress,
            engine=engine,
            jobs=jobs_each(variants, at_once, parallel_jobs()),
            twice=twice,
            bundled=build_bundled(root, matrix.project.bundled, dist, progress),
        )
        with reaping(engine, run.id) if engine else contextlib.nullcontext():
            return _all(run, variants, at_once)


def _all(run: Run, variants: Sequence[Variant], at_once: int) -> tuple[str, int]:
    def work(variant: Variant) -> tuple[BuildRecord, bool]:
        try:
            record, fresh = one.make(run, variant)
        except TorchwheelError:
            run.progress.say(f"{variant.id}: FAILED")
            raise
        run.progress.say(f"{variant.id}: {record.file if fresh else 'nothing to do'}")
        return record, fresh

    outcomes = side_by_side(variants, work, at_once)
    done = [outcome.record for outcome in outcomes if outcome.record]
    failed = {outcome.variant.id: outcome.error for outcome in outcomes if outcome.error}
    index = run.dist / "index"
    groups = index_wheels(run, index)
    write_text(run.dist / "report.json", report.report_json(outcomes))
    parts = []
    if done:
        fresh = [outcome.variant.id for outcome in outcomes if outcome.fresh]
        commands = _commands(run.matrix, done, groups, index)
        parts += [report.report_table(done, fresh), "\n  ".join(["To install:", *commands])]
    if failed:
        parts.append("\n".join(f"failed: {name}: {error}" for name, error in failed.items()))
    return "\n\n".join(parts), int(bool(failed))


def _listed(archs: Sequence[str], toolkit: ToolkitSection) -> tuple[str, ...]:
    """What the command line asks for, of one toolkit; nothing if all is for another backend."""
    own = [arch for arch in archs if arch.startswith("gfx") == (toolkit.backend == "rocm")]
    if toolkit.backend == "rocm" or not own:
        return tuple(own)
    compiler = Compiler("cuda", toolkit.version)
    found = lists.parse_arch_list(";".join(own), compiler, lambda: visible_gpus("cuda"), "--archs")
    return tuple(map(str, found.whole("--archs")))


def _narrowed(matrix: Matrix, variants: Sequence[Variant], archs: Sequence[str]) -> Matrix:
    """The matrix with another arch list for the variants' toolkits, held to the same rules."""
    asked = {variant.toolkit.name for variant in variants if variant.toolkit}
    listed = {name: _listed(archs, matrix.toolkits[name]) for name in sorted(asked)}
    if archs and not any(listed.values()):
        raise UsageError(
            f"--archs: {' '.join(archs)}: no variant that is asked for is built for such a GPU"
        )
    toolkits = {
        name: section.model_copy(update={"archs": listed[name]}) if listed.get(name) else section
        for name, section in matrix.toolkits.items()
    }
    narrowed = matrix.model_copy(update={"toolkits": toolkits})
    found = findings(narrowed) if archs else []
    if found:
        raise UsageError(f"--archs: {found[0][1]}")
    return narrowed


def _sweep(dist: Path) -> None:
    """Remove what killed runs left; the lock is held, so nobody is at work on it."""
    for left in (dist / records.FOLDER).glob("making-*"):
        shutil.rmtree(left, ignore_errors=True)
    for folder in (dist, dist / records.FOLDER, dist / "smoke"):
        remove_leftovers(folder)


def _commands(
    matrix: Matrix, done: Sequence[BuildRecord], groups: Mapping[str, tuple[str, ...]], index: Path
) -> list[str]:
    return [
        install_command(matrix.project.name, record, groups[record.variant][0], index)
        for record in done
    ]
