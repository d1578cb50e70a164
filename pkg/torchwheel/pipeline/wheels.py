"""The main job: variants of a matrix in, proven wheels and an index out."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from filelock import FileLock

from torchwheel.builder.environment import arch_list
from torchwheel.console import Progress, waiting
from torchwheel.errors import TorchwheelError, UsageError
from torchwheel.files import sweep
from torchwheel.index.build import build_index
from torchwheel.index.groups import groups_of
from torchwheel.index.model import IndexedWheel
from torchwheel.inspect.wheel import read_wheel
from torchwheel.matrix.load import load
from torchwheel.matrix.model import Matrix
from torchwheel.matrix.resolve import Variant
from torchwheel.matrix.rules import findings
from torchwheel.matrix.select import select
from torchwheel.pipeline import record as records
from torchwheel.pipeline import variant as one
from torchwheel.pipeline.record import Record
from torchwheel.pipeline.report import install_command, table
from torchwheel.pipeline.run import Run
from torchwheel.pipeline.sources import source_digest
from torchwheel.toolkit.cache import cache_folder


def wheels(
    matrix_file: Path,
    wanted: Sequence[str],
    dist: Path,
    progress: Progress,
    *,
    archs: Sequence[str] = (),
    launcher: bool = True,
) -> tuple[str, int]:
    """Build, repair, check, smoke-test and index the variants `wanted` names.

    Args:
        matrix_file: the matrix.
        wanted: selections, variant ids or patterns.
        dist: the output folder.
        progress: where to say what is being done.
        archs: an arch list in place of the matrix's, for a quick build.
        launcher: whether sccache may be used where it is found.

    Returns:
        The closing text and the exit status: 1 if a variant failed, the others being kept.
    """
    matrix = _narrowed(load(matrix_file), archs)
    variants = select(matrix, tuple(wanted) or ("default",))
    _check_buildable(variants)
    dist = dist.resolve()
    (dist / records.FOLDER).mkdir(parents=True, exist_ok=True)
    cache = cache_folder()
    root = matrix_file.resolve().parent
    lock = FileLock(dist / records.FOLDER / "lock")
    with waiting(lock, f"another run writes to {dist}", progress):
        _sweep(dist)
        run = Run(
            matrix=matrix,
            root=root,
            dist=dist,
            cache=cache,
            sources=source_digest((root / matrix.project.source).resolve()),
            launcher=_launcher() if launcher else (),
            progress=progress,
        )
        return _all(run, variants)


def _all(run: Run, variants: Sequence[Variant]) -> tuple[str, int]:
    done: list[Record] = []
    fresh: list[str] = []
    failures: list[str] = []
    for variant in variants:
        try:
            record, made = one.make(run, variant)
        except UsageError:
            raise
        except TorchwheelError as error:
            failures.append(f"{variant.id}: {error}")
            run.progress.say(f"{variant.id}: FAILED")
            continue
        done.append(record)
        if made:
            fresh.append(variant.id)
        run.progress.say(f"{variant.id}: {record.file if made else 'nothing to do'}")
    index = run.dist / "index"
    groups = _index(run, index)
    parts = [table(done, fresh)] if done else []
    parts += [
        "To install:\n"
        + "\n".join(f"  {line}" for line in _commands(run.matrix, done, groups, index))
    ] * bool(done)
    parts += ["\n".join(f"failed: {failure}" for failure in failures)] * bool(failures)
    return "\n\n".join(parts), int(bool(failures))


def _narrowed(matrix: Matrix, archs: Sequence[str]) -> Matrix:
    """The matrix with another arch list for every CUDA toolkit, held to the same rules."""
    if not archs:
        return matrix
    listed = tuple(str(arch) for arch in arch_list(";".join(archs)))
    toolkits = {
        name: section.model_copy(update={"archs": listed}) if section.backend == "cuda" else section
        for name, section in matrix.toolkits.items()
    }
    narrowed = matrix.model_copy(update={"toolkits": toolkits})
    found = findings(narrowed)
    if found:
        raise UsageError(f"--archs: {found[0][1]}")
    return narrowed


def _check_buildable(variants: Sequence[Variant]) -> None:
    """Refuse before anything is built what this machine cannot build."""
    for variant in variants:
        if variant.abi == "aten":
            raise UsageError(
                f"{variant.id}: the aten flavour is not built on the host; use a container"
            )
        if variant.toolkit and variant.toolkit.backend != "cuda":
            raise UsageError(f"{variant.id}: {variant.toolkit.backend} is not built on the host")


def _launcher() -> tuple[str, ...]:
    found = shutil.which("sccache")
    return (found,) if found else ()


def _sweep(dist: Path) -> None:
    """Remove what killed runs left; the lock is held, so nobody is at work on it."""
    for left in (dist / records.FOLDER).glob("making-*"):
        shutil.rmtree(left, ignore_errors=True)
    for folder in (dist, dist / records.FOLDER, dist / "smoke"):
        sweep(folder)


def _index(run: Run, index: Path) -> Mapping[str, tuple[str, ...]]:
    """Index every recorded wheel of the folder; returns the groups of each variant."""
    releases = {name: tuple(entry.toolkits) for name, entry in run.matrix.torch.items()}
    groups: dict[str, tuple[str, ...]] = {}
    indexed = []
    for record in records.every(run.dist):
        claims = read_wheel(run.dist / record.file).claims
        if claims is not None:
            groups[record.variant] = groups_of(claims, releases)
            indexed.append(IndexedWheel(run.dist / record.file, groups[record.variant]))
    build_index(indexed, index)
    return groups


def _commands(
    matrix: Matrix, done: Sequence[Record], groups: Mapping[str, tuple[str, ...]], index: Path
) -> list[str]:
    return [
        install_command(matrix.project.name, record, groups[record.variant][0], index)
        for record in done
    ]
