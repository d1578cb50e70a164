"""`torchwheel assemble`: one verified release folder, or a line for each fault."""

import dataclasses
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from packaging.version import InvalidVersion, Version

from torchwheel.evidence.files import Believed, ReadBundle
from torchwheel.evidence.policy import policy_of, release_policies
from torchwheel.evidence.provenance import SUFFIX, provenance_text
from torchwheel.index.catalogue import read_catalogues
from torchwheel.inspect.wheel import Wheel, read_wheel
from torchwheel.matrix.load import load
from torchwheel.matrix.sections import Matrix
from torchwheel.matrix.variants import select, with_gpu_runners
from torchwheel.pipeline.inputs import limits_of
from torchwheel.release.artifacts import (
    Artifacts,
    Candidate,
    ReleaseCase,
    bundled_wheels,
    check_bundled,
    is_bundled,
    read_artifacts,
    read_candidate,
    release_cases,
    selection_faults,
)
from torchwheel.release.folder import (
    Release,
    changed_names,
    check_target,
    first_uploads,
    release_catalogue,
    release_table,
    write_release,
)
from torchwheel.release.rules import release_faults
from torchwheel.release.sdists import make_sdists, sdist_faults
from torchwheel.release.sources import read_sources
from torchwheel.release.uploads import upload_faults
from torchwheel_runtime.console import Progress
from torchwheel_runtime.errors import TorchwheelError, UsageError
from torchwheel_runtime.files import remove_leftovers


@dataclasses.dataclass(frozen=True)
class Signatures:
    """The signatures that a release asks for."""

    commit: str
    """The commit that every file must be made from."""
    read: ReadBundle
    """Verifies a bundle."""
    repository: str | None = None
    """The repository whose workflows sign; default: the matrix's."""


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
    signatures: Signatures | None = None,
    pypi: bool = False,
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
        signatures: if given, no file is read before its signature was verified.
        pypi: hold what is uploaded to PyPI to its rules.

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
    believed, releases = _believed(matrix, str(matrix_file), signatures)
    published = read_catalogues([earlier], releases) if earlier else ()
    try:
        artifacts = read_artifacts(folders, believed)
    except UsageError:
        raise
    except TorchwheelError as error:
        _raise(out, str(error).splitlines())
    root = matrix_file.resolve().parent
    # Wherever it was built: a wheel of a host may ask for more than one of a container.
    glibc = matrix.containers.glibc if matrix.containers else None
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
                abi = wheel.claims.abi if wheel.claims else "pure"
                candidates.append(read_candidate(wheel, limits_of(matrix, root, abi, glibc)))
        except TorchwheelError as error:
            faults.append(str(error))
    bundled, bundled_faults = bundled_wheels(others)
    cases = release_cases(selected, candidates, artifacts, bundled)
    faults += [
        *selection_faults(selected, candidates, artifacts),
        *release_faults(read_sources(matrix, root), cases, expected),
    ]
    faults += [*bundled_faults, *check_bundled(matrix, root, bundled)]
    faults += changed_names([*candidates, *bundled], published)
    _raise(out, faults)
    with tempfile.TemporaryDirectory() as scratch:
        sdists = make_sdists(matrix, root, Path(scratch), progress)
        faults = list(sdist_faults(sdists, cases, bundled, ordinary=bool(matrix.abis.ordinary)))
        provenance = dict(_provenance(cases, artifacts))
        release = Release(matrix.project.name, version, cases, bundled, sdists, provenance)
        catalogue = release_catalogue(release, first_uploads(release.wheels, out, published))
        if pypi:
            own = [one.wheel for one in release.wheels if one.path.name not in catalogue.taken]
            faults += upload_faults(own, sdists)
        _raise(out, faults)
        progress.step(f"writing {out}")
        write_release(out, release, catalogue)
    return f"{release_table(release)}\n{_signed_text(artifacts)}"


def _believed(
    matrix: Matrix, where: str, signatures: Signatures | None
) -> tuple[Believed, Believed] | tuple[None, None]:
    """Whose signatures of artifacts are believed, and whose of published catalogues."""
    if signatures is None:
        return None, None
    section, repository = matrix.evidence, signatures.repository
    own = policy_of(section, where, repository=repository, commit=signatures.commit)
    policies = release_policies(section, where, repository=repository)
    unsigned = frozenset(section.unsigned if section else ())
    return Believed((own,), signatures.read), Believed(policies, signatures.read, unsigned)


def _provenance(cases: Sequence[ReleaseCase], artifacts: Artifacts) -> Iterator[tuple[str, str]]:
    """The name and the text of the provenance of each wheel that was attested alone."""
    for path in (case.candidate.path for case in cases):
        if artifacts.attestations and (text := provenance_text(artifacts.attestations[path])):
            yield f"{path.name}{SUFFIX}", text


def _signed_text(artifacts: Artifacts) -> str:
    """The last line of the table: who signed the files."""
    if artifacts.attestations is None:
        return "unsigned: no signature was asked for (--commit)"
    signed = artifacts.attestations
    bundles = {attestation.bundle for attestation in signed.values()}
    return f"signed: {len(signed)} files, by {len(bundles)} bundles"


def _raise(out: Path, faults: Sequence[str]) -> None:
    if faults:
        raise TorchwheelError(f"nothing is written to {out}; faults: {len(faults)}", *faults)


def _version(text: str | None) -> Version | None:
    try:
        return None if text is None else Version(text)
    except InvalidVersion:
        raise UsageError(f'{text!r} is not a version; expected e.g. "1.0.0" or "v1.0.0"') from None
