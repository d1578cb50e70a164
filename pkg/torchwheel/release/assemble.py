"""Assembles a release: one verified folder, or a line for each fault."""

from collections.abc import Sequence
from pathlib import Path

from packaging.version import InvalidVersion, Version

from torchwheel.check.facts import Limits
from torchwheel.console import Progress
from torchwheel.errors import TorchwheelError, UsageError
from torchwheel.index.contents import groups_of
from torchwheel.inspect.wheel import Wheel, read_wheel
from torchwheel.matrix.load import load
from torchwheel.matrix.variants import select
from torchwheel.release import report
from torchwheel.release.cases import sort, strays
from torchwheel.release.gather import (
    Candidate,
    check_complete,
    distinct,
    examine,
    gather,
    is_bundled,
)
from torchwheel.release.report import read_earlier
from torchwheel.release.rules import faults
from torchwheel.release.write import check_target, write


def assemble(
    matrix_file: Path,
    selection: Sequence[str],
    folders: Sequence[Path],
    out: Path,
    progress: Progress,
    *,
    version: str | None = None,
    earlier: Path | None = None,
) -> str:
    """Verify every wheel and record, then write the release.

    Args:
        matrix_file: the matrix.
        selection: selections, variant ids or patterns: exactly these must be there.
        folders: outputs of `torchwheel wheels` and `smoke`, or folders of such outputs.
        out: the folder to write; replaced if it is an earlier release.
        progress: where to say what is being done.
        version: the release, e.g. "1.0.0" or the tag "v1.0.0".
        earlier: a folder of earlier releases, whose wheels stay in the index.

    Returns:
        The table.

    Raises:
        TorchwheelError: a line for each fault; nothing was written.
    """
    wanted = _version(version)
    matrix = load(matrix_file)
    selected = select(matrix, selection)
    check_target(out)
    before = read_earlier(earlier) if earlier else ()
    gathered = gather(folders)
    found = list(gathered.faults)
    candidates: list[Candidate] = []
    beside: list[Wheel] = []
    for path in gathered.wheels:
        progress.step(f"gates: {path.name}")
        try:
            wheel = read_wheel(path)
            if is_bundled(wheel, matrix):
                beside.append(wheel)
            else:
                candidates.append(examine(wheel, Limits(max_size_mib=matrix.gates.max_size_mib)))
        except TorchwheelError as error:
            found.append(str(error))
    bundled, differing = distinct(beside)
    cases = sort(selected, candidates, gathered, bundled)
    found += [*strays(selected, candidates, gathered), *faults(matrix, cases, wanted)]
    found += [*differing, *check_complete(matrix, bundled, before)]
    if found:
        raise TorchwheelError(
            "\n".join([f"nothing is written to {out}; faults: {len(found)}", *found])
        )
    groups = {case.variant.id: groups_of(case.candidate.claims, matrix.served()) for case in cases}
    text = report.document(matrix.project.name, cases, bundled, groups)
    progress.step(f"writing {out}")
    write(out, cases, bundled, groups, text, before)
    return report.table(cases, bundled)


def _version(text: str | None) -> Version | None:
    try:
        return None if text is None else Version(text)
    except InvalidVersion:
        raise UsageError(f'{text!r} is not a version; expected e.g. "1.0.0" or "v1.0.0"') from None
