"""Reads the artifacts of a release from folders, and matches them with the selected variants."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from packaging.utils import canonicalize_name

from torchwheel.check.content import require_content
from torchwheel.check.declared import read_declared
from torchwheel.check.facts import Limits
from torchwheel.check.gates import run_gates
from torchwheel.evidence.files import BUNDLES, Attestation, Believed, verify_files
from torchwheel.evidence.policy import Policy, role_text
from torchwheel.findings import CheckResult
from torchwheel.inspect.wheel import Wheel, read_bundled
from torchwheel.matrix.rules import WHEEL_SUFFIX
from torchwheel.matrix.sections import Matrix
from torchwheel.matrix.variants import Variant
from torchwheel.pipeline import build_records as build_record
from torchwheel.pipeline.build_records import BuildRecord
from torchwheel.pipeline.bundled import pinned_with
from torchwheel.smoke import smoke_record
from torchwheel.smoke.requirements import BUNDLED_FOLDER
from torchwheel.smoke.smoke_record import SmokeRecord
from torchwheel_runtime.claims import Claims
from torchwheel_runtime.errors import MalformedError, TorchwheelError, UsageError
from torchwheel_runtime.files import sha256
from torchwheel_runtime.inspect.window import WheelError
from torchwheel_runtime.json_files import read_json
from torchwheel_runtime.os_errors import explain
from torchwheel_runtime.text import escape, join_names


@dataclasses.dataclass(frozen=True)
class HashedWheel:
    """A wheel and the hash of its file. Of a bundled package every artifact holds the same file."""

    wheel: Wheel
    sha256: str

    @property
    def path(self) -> Path:
        """The file."""
        return self.wheel.path


@dataclasses.dataclass(frozen=True)
class Candidate(HashedWheel):
    """The wheel of a variant, with its claims and the results of its gates."""

    claims: Claims
    gates: tuple[CheckResult, ...]


def read_candidate(wheel: Wheel, limits: Limits) -> Candidate:
    """Hash a wheel and run its gates; raise a WheelError if it has no claims."""
    path = wheel.path
    if wheel.claims is None:
        raise WheelError(f"{path}: claims nothing (no torchwheel.json): not made by this pipeline")
    return Candidate(wheel, sha256(path), wheel.claims, run_gates(path, limits))


def is_bundled(wheel: Wheel, matrix: Matrix) -> bool:
    """Whether a wheel has no claims and is not of the project itself."""
    return wheel.claims is None and wheel.name != canonicalize_name(matrix.project.name)


def bundled_wheels(wheels: Sequence[Wheel]) -> tuple[tuple[HashedWheel, ...], list[str]]:
    """Each bundled package once; a line for each that is malformed or differs by artifact."""
    by_name: dict[str, HashedWheel] = {}
    faults: list[str] = []
    for wheel in wheels:
        digest = sha256(wheel.path)
        first = by_name.setdefault(wheel.path.name, HashedWheel(wheel, digest))
        if first.sha256 != digest:
            faults.append(f"{wheel.path}: sha256 {digest}; {first.path} has {first.sha256}")
    for package in by_name.values():
        try:
            read_bundled(package.path)
        except TorchwheelError as error:
            faults.append(str(error))
    return tuple(by_name[name] for name in sorted(by_name)), faults


def check_bundled(matrix: Matrix, root: Path, bundled: Sequence[HashedWheel]) -> Iterator[str]:
    """A line for each package that is not one of the matrix.

    Args:
        matrix: the matrix.
        root: its folder. Each bundled package has its name in a pyproject.toml below it, is a wheel
            there, or a file of torchwheel's own lock.
        bundled: the packages of the release.
    """
    folders, pins = matrix.project.bundled, pinned_with(package.wheel for package in bundled)
    wanted = [*folders, *pins]
    if len(bundled) != len(wanted):
        found = join_names(package.path.name for package in bundled) or "none"
        expected = f"one for each of {join_names(wanted)}" if wanted else "none"
        yield f"bundled packages: {found}; expected {expected}"
    wheels = {sha256(root / name) for name in folders if name.endswith(WHEEL_SUFFIX)}
    wheels |= {digest for pin in pins.values() for digest in pin.hashes}
    sources = [name for name in folders if not name.endswith(WHEEL_SUFFIX)]
    expected_names = {one.name: one for one in (read_declared(root / name) for name in sources)}
    for package in bundled:
        if package.sha256 in wheels:
            continue
        declared = expected_names.get(package.wheel.name)
        if declared is None:
            names = join_names(expected_names) or "none"
            yield f"{package.path}: a bundled package named {package.wheel.name}; expected {names}"
            continue
        try:
            require_content(package.wheel, declared)
        except TorchwheelError as error:
            yield f"{package.path}: {error}"


T = TypeVar("T")

SMOKE_FOLDER = "smoke"

_OF_BUILDS = frozenset({"build"})
_OF_TESTS = frozenset({"build", "smoke"})
# Each kind of file of an artifact: where it lies, and the roles of which one must sign it. A job
# that builds a wheel also tries it, without a GPU.
SIGNERS: Mapping[str, frozenset[str]] = {
    "*.whl": _OF_BUILDS,
    f"{BUNDLED_FOLDER}/*.whl": _OF_BUILDS,
    f"{build_record.FOLDER}/*.json": _OF_BUILDS,
    f"{SMOKE_FOLDER}/*.json": _OF_TESTS,
}


@dataclasses.dataclass(frozen=True)
class RecordFile(Generic[T]):
    """A record and its file."""

    path: Path
    record: T


@dataclasses.dataclass(frozen=True)
class Artifacts:
    """The wheels and records of a release, and a line for each file that is malformed."""

    wheels: tuple[Path, ...]
    builds: tuple[RecordFile[build_record.BuildRecord], ...]
    smokes: tuple[RecordFile[smoke_record.SmokeRecord], ...]
    faults: tuple[str, ...]
    attestations: Mapping[Path, Attestation] | None = None
    """Who signed each file; None where no signature was asked for."""


def read_artifacts(folders: Sequence[Path], believed: Believed | None = None) -> Artifacts:
    """Read outputs of `torchwheel wheels` and `smoke`, or folders of such outputs.

    Args:
        folders: the outputs, or folders of them.
        believed: if given, every file must be signed by a job of its role.

    Raises:
        TorchwheelError: a line for each signature that is missing or not to be believed. Only the
            hashes of the files were read.
    """
    for folder in folders:
        if not folder.is_dir():
            raise UsageError(f"a folder of wheels and records expected at {folder}, which is none")
    outputs = [output for folder in folders for output in _outputs(folder)]
    faults: list[str] = []
    files = {pattern: tuple(_files(outputs, pattern, faults)) for pattern in SIGNERS}
    bundles = tuple(_files(outputs, BUNDLES, faults))
    signed = _verify(files, bundles, believed, faults) if believed else None
    wheels, bundled, builds, tests = files.values()
    smokes = tuple(
        file
        for path in tests
        for file in _read(path, smoke_record.SmokeRecord, "smoke", faults, smoke_record.SCHEMA)
    )
    if believed and signed:
        faults += _gpus_of_builds(smokes, signed, believed.policy)
    return Artifacts(
        wheels=(*wheels, *bundled),
        builds=tuple(
            file
            for path in builds
            for file in _read(path, build_record.BuildRecord, "build", faults)
        ),
        smokes=smokes,
        faults=tuple(faults),
        attestations=signed,
    )


def _verify(
    files: Mapping[str, Sequence[Path]],
    bundles: Sequence[Path],
    believed: Believed,
    faults: Sequence[str],
) -> Mapping[Path, Attestation]:
    signers = {path: SIGNERS[pattern] for pattern, paths in files.items() for path in paths}
    try:
        return verify_files(signers, bundles, believed)
    except TorchwheelError as error:
        raise TorchwheelError(*faults, *error.args) from None


def _gpus_of_builds(
    smokes: Sequence[RecordFile[smoke_record.SmokeRecord]],
    signed: Mapping[Path, Attestation],
    policy: Policy,
) -> Iterator[str]:
    """A line for each record of tests on a GPU that a job without one signed."""
    expected = frozenset({"smoke"}) & policy.workflows.keys()
    for file in smokes:
        gpu, found = file.record.machine.gpu, policy.roles_of(signed[file.path].signer)
        if gpu and expected and not found & expected:
            says = f"expected a signature of {role_text(expected, policy)}"
            says += f", found one of {role_text(found, policy)}"
            yield f"{file.path}: tests on a GPU ({escape(gpu.name)}): {says}"


def _outputs(folder: Path) -> list[Path]:
    """The folder itself if a run wrote it, else it and the folders in it, one for each artifact."""
    if (folder / build_record.FOLDER).is_dir() or (folder / SMOKE_FOLDER).is_dir():
        return [folder]
    return [folder, *sorted(path for path in folder.iterdir() if path.is_dir())]


def _files(outputs: Sequence[Path], pattern: str, faults: list[str]) -> Iterator[Path]:
    for path in (path for output in outputs for path in sorted(output.glob(pattern))):
        # A link could lead to any file of the machine that publishes.
        if path.is_symlink() or not path.is_file():
            faults.append(f"{path}: is no plain file")
        else:
            yield path


def _read(
    path: Path, kind: type[T], name: str, faults: list[str], schema: int | None = None
) -> Iterator[RecordFile[T]]:
    try:
        record = read_json(path, kind, schema=schema)
    except MalformedError as error:
        faults.append(f"{path}: not a {name} record: {error.reason}")
    except OSError as error:
        faults.append(explain(error))
    else:
        yield RecordFile(path, record)


@dataclasses.dataclass(frozen=True)
class ReleaseCase:
    """A variant, its wheel, every record of it, and the bundled packages published with it."""

    variant: Variant
    candidate: Candidate
    builds: tuple[BuildRecord, ...]
    smoke_files: tuple[RecordFile[SmokeRecord], ...]
    bundled: Mapping[str, str]
    """Hex SHA-256 by file name."""

    @property
    def smokes(self) -> tuple[SmokeRecord, ...]:
        """The records of its smoke runs."""
        return tuple(file.record for file in self.smoke_files)


def release_cases(
    selected: Sequence[Variant],
    candidates: Sequence[Candidate],
    artifacts: Artifacts,
    bundled: Sequence[HashedWheel],
) -> tuple[ReleaseCase, ...]:
    """The selected variants that have exactly one wheel; `selection_faults` reports the others."""
    return tuple(
        ReleaseCase(
            variant=variant,
            candidate=own[0],
            builds=tuple(f.record for f in artifacts.builds if f.record.variant == variant.id),
            smoke_files=tuple(f for f in artifacts.smokes if f.record.wheel == own[0].path.name),
            bundled={package.path.name: package.sha256 for package in bundled},
        )
        for variant in selected
        if len(own := _candidates_of(variant.id, candidates)) == 1
    )


def selection_faults(
    selected: Sequence[Variant], candidates: Sequence[Candidate], artifacts: Artifacts
) -> Iterator[str]:
    """A line for each variant without exactly one wheel, and for each artifact of no variant."""
    names = [variant.id for variant in selected]
    for name in names:
        paths = [str(candidate.path) for candidate in _candidates_of(name, candidates)]
        if not paths:
            yield f"{name}: no wheel; it is selected, so one is expected"
        elif len(paths) > 1:
            yield f"{name}: {len(paths)} wheels; one expected: {join_names(paths)}"
    for candidate in candidates:
        if candidate.claims.variant not in names:
            yield f"{candidate.path}: variant {candidate.claims.variant} is not selected"
    claimed = {candidate.claims.variant for candidate in candidates}
    for build in artifacts.builds:
        if build.record.variant not in claimed.union(names):
            yield f"{build.path}: the record of {build.record.variant}, which has no wheel here"
    wheels = {candidate.path.name for candidate in candidates}
    for smoke in artifacts.smokes:
        if smoke.record.wheel not in wheels:
            yield f"{smoke.path}: the record of {smoke.record.wheel}, which is not here"


def _candidates_of(variant: str, candidates: Sequence[Candidate]) -> list[Candidate]:
    return [candidate for candidate in candidates if candidate.claims.variant == variant]
