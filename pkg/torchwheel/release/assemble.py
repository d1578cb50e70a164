"""`torchwheel assemble`: one verified release folder, or a line for each fault."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from packaging.version import InvalidVersion, Version

from torchwheel.check.facts import Limits
from torchwheel.console import Progress
from torchwheel.errors import TorchwheelError, UsageError
from torchwheel.files import remove_leftovers
from torchwheel.index.catalogue import read_catalogues
from torchwheel.inspect.wheel import Wheel, read_wheel
from torchwheel.matrix.load import load
from torchwheel.matrix.runners import with_gpu_runners
from torchwheel.matrix.sections import Matrix
from torchwheel.matrix.variants import select
from torchwheel.release import report
from torchwheel.release.artifacts import (
    Candidate,
    bundled_wheels,
    check_bundled,
    is_bundled,
    read_artifacts,
    read_candidate,
)
from torchwheel.release.cases import release_cases, unmatched
from torchwheel.release.rules import release_faults
from torchwheel.release.sdists import make_sdists, sdist_faults
from torchwheel.release.write import check_target, write_release


def assemble(
    matrix_file: Path,
    selection: Sequence[str],
    folders: Sequence[Path],
    out: Path,
    progress: Progress,
    *,
    version: str | None = None,
    earlier: Path | None = None,
    gpu: str = "yes",
) -> str:
    """Verify every wheel and record, then write the release.

    Args:
        matrix_file: the matrix.
        selection: selections, variant ids or patterns: exactly these must have wheels.
        folders: outputs of `torchwheel wheels` and `smoke`, or folders of such outputs.
        out: the folder to write; replaced if it is an earlier release.
        progress: reports each step to the user.
        version: the release, e.g. "1.0.0" or the tag "v1.0.0".
        earlier: a folder with the catalogues of earlier releases.
        gpu: "no" for a dry run that reaches no GPU: none of the wheels need have run on one.

    Returns:
        The table.

    Raises:
        TorchwheelError: a line for each fault; nothing was written.
    """
    expected = _version(version)
    matrix = with_gpu_runners(load(matrix_file), gpu)
    selected = select(matrix, selection)
    remove_leftovers(out.parent, out.name)
    check_target(out)
    published = read_catalogues([earlier]) if earlier else ()
    artifacts = read_artifacts(folders)
    faults = list(artifacts.faults)
    candidates: list[Candidate] = []
    others: list[Wheel] = []
    for path in artifacts.wheels:
        progress.step(f"gates: {path.name}")
        try:
            wheel = read_wheel(path)
            if is_bundled(wheel, matrix):
                others.append(wheel)
            else:
                candidates.append(read_candidate(wheel, _limits(matrix, wheel)))
        except TorchwheelError as error:
            faults.append(str(error))
    bundled, bundled_faults = bundled_wheels(others)
    cases = release_cases(selected, candidates, artifacts, bundled)
    faults += [
        *unmatched(selected, candidates, artifacts),
        *release_faults(matrix, cases, expected),
    ]
    faults += [*bundled_faults, *check_bundled(matrix, bundled)]
    faults += report.changed_names([*candidates, *bundled], published)
    _raise(out, faults)
    with tempfile.TemporaryDirectory() as scratch:
        sdists = make_sdists(matrix, matrix_file.resolve().parent, Path(scratch), progress)
        _raise(out, list(sdist_faults(sdists, cases, bundled)))
        uploaded = report.first_uploads(
            [*(case.candidate for case in cases), *bundled], out, published
        )
        name = matrix.project.name
        catalogue = report.release_catalogue(name, version, cases, bundled, sdists, uploaded)
        progress.step(f"writing {out}")
        write_release(out, cases, bundled, sdists, catalogue)
    return report.release_table(cases, bundled)


def _raise(out: Path, faults: Sequence[str]) -> None:
    if faults:
        raise TorchwheelError(
            "\n".join([f"nothing is written to {out}; faults: {len(faults)}", *faults])
        )


def _limits(matrix: Matrix, wheel: Wheel) -> Limits:
    abi = wheel.claims.abi if wheel.claims else "pure"
    return Limits(max_size_mib=matrix.gates.size_of(abi))


def _version(text: str | None) -> Version | None:
    try:
        return None if text is None else Version(text)
    except InvalidVersion:
        raise UsageError(f'{text!r} is not a version; expected e.g. "1.0.0" or "v1.0.0"') from None
