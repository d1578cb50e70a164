"""Reads the artifacts that were handed in: wheels and records, out of folders."""

import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from packaging.utils import canonicalize_name
from pydantic import TypeAdapter, ValidationError

from torchwheel.check.facts import Limits
from torchwheel.check.gates import GateResult, run_gates
from torchwheel.claims import Claims
from torchwheel.errors import TorchwheelError, UsageError
from torchwheel.files import sha256
from torchwheel.index.contents import IndexedWheel
from torchwheel.inspect.archive import WheelError
from torchwheel.inspect.wheel import Wheel, read_bundled
from torchwheel.matrix.sections import Matrix
from torchwheel.pipeline import records as build_record
from torchwheel.smoke import record as smoke_record
from torchwheel.smoke.requirements import BUNDLED_FOLDER
from torchwheel.text import join_names


@dataclasses.dataclass(frozen=True)
class Candidate:
    """One wheel as it lies there."""

    wheel: Wheel
    claims: Claims
    sha256: str
    gates: tuple[GateResult, ...]

    @property
    def path(self) -> Path:
        """The file."""
        return self.wheel.path


def examine(wheel: Wheel, limits: Limits) -> Candidate:
    """Hash and judge a wheel; a WheelError says why it cannot be one of ours."""
    path = wheel.path
    if wheel.claims is None:
        raise WheelError(f"{path}: claims nothing (no torchwheel.json): not made by this pipeline")
    return Candidate(wheel, wheel.claims, sha256(path), run_gates(path, limits))


@dataclasses.dataclass(frozen=True)
class BundledWheel:
    """A bundled package: every artifact holds the same file."""

    wheel: Wheel
    sha256: str

    @property
    def path(self) -> Path:
        """The file."""
        return self.wheel.path


def is_bundled(wheel: Wheel, matrix: Matrix) -> bool:
    """Whether a wheel was made for no variant, and is not of the project itself."""
    return wheel.claims is None and wheel.name != canonicalize_name(matrix.project.name)


def distinct(wheels: Sequence[Wheel]) -> tuple[tuple[BundledWheel, ...], list[str]]:
    """Each bundled package once, and a line for each that is malformed or differs by artifact."""
    found: dict[str, BundledWheel] = {}
    faults: list[str] = []
    for wheel in wheels:
        digest = sha256(wheel.path)
        known = found.setdefault(wheel.path.name, BundledWheel(wheel, digest))
        if known.sha256 != digest:
            faults.append(f"{wheel.path}: sha256 {digest}; {known.path} has {known.sha256}")
    for package in found.values():
        try:
            read_bundled(package.path)
        except TorchwheelError as error:
            faults.append(str(error))
    return tuple(found[name] for name in sorted(found)), faults


def check_complete(
    matrix: Matrix, bundled: Sequence[BundledWheel], earlier: Sequence[IndexedWheel]
) -> Iterator[str]:
    """One wheel for each that the matrix names; a name that was published keeps its bytes."""
    wanted = matrix.project.bundled
    if len(bundled) != len(wanted):
        came = join_names(one.path.name for one in bundled) or "none"
        expected = f"one for each of {join_names(wanted)}" if wanted else "none"
        yield f"bundled packages: {came}; expected {expected}"
    published = {wheel.path.name: wheel.path for wheel in earlier}
    for one in bundled:
        before = published.get(one.path.name)
        if before and sha256(before) != one.sha256:
            yield f"{one.path}: {before} was published with other bytes; raise its version"


T = TypeVar("T")

_BUILD = TypeAdapter(build_record.BuildRecord)
_SMOKE = TypeAdapter(smoke_record.SmokeRecord)
SMOKE_FOLDER = "smoke"


@dataclasses.dataclass(frozen=True)
class Artifact(Generic[T]):
    """A record and the file it came from."""

    path: Path
    record: T


@dataclasses.dataclass(frozen=True)
class Gathered:
    """Everything of the folders that can matter to a release."""

    wheels: tuple[Path, ...]
    builds: tuple[Artifact[build_record.BuildRecord], ...]
    smokes: tuple[Artifact[smoke_record.SmokeRecord], ...]
    faults: tuple[str, ...]


def gather(folders: Sequence[Path]) -> Gathered:
    """Read folders that `torchwheel wheels` and `smoke` wrote, or folders of such folders."""
    for folder in folders:
        if not folder.is_dir():
            raise UsageError(f"a folder of wheels and records expected at {folder}, which is none")
    places = [place for folder in folders for place in _places(folder)]
    faults: list[str] = []
    return Gathered(
        wheels=(
            *_files(places, "*.whl", faults),
            *_files(places, f"{BUNDLED_FOLDER}/*.whl", faults),
        ),
        builds=tuple(
            found
            for path in _files(places, f"{build_record.FOLDER}/*.json", faults)
            for found in _read(path, _BUILD, "build", faults)
        ),
        smokes=tuple(
            found
            for path in _files(places, f"{SMOKE_FOLDER}/*.json", faults)
            for found in _read(path, _SMOKE, "smoke", faults, smoke_record.SCHEMA)
        ),
        faults=tuple(faults),
    )


def _places(folder: Path) -> list[Path]:
    """The folder itself if it is one run's output, else the folders in it: one an artifact."""
    if (folder / build_record.FOLDER).is_dir() or (folder / SMOKE_FOLDER).is_dir():
        return [folder]
    return [folder, *sorted(path for path in folder.iterdir() if path.is_dir())]


def _files(places: Sequence[Path], pattern: str, faults: list[str]) -> Iterator[Path]:
    for path in (path for place in places for path in sorted(place.glob(pattern))):
        # A link could name any file of the machine that publishes.
        if path.is_symlink() or not path.is_file():
            faults.append(f"{path}: is no plain file")
        else:
            yield path


def _read(
    path: Path, kind: TypeAdapter[T], name: str, faults: list[str], schema: int | None = None
) -> Iterator[Artifact[T]]:
    try:
        text = path.read_text(encoding="utf-8")
        record = kind.validate_json(text, strict=True)
        if schema is not None and json.loads(text).get("schema") != schema:
            raise ValueError(f"schema {schema} expected")
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        faults.append(f"{path}: not a {name} record: {where + ': ' if where else ''}{first['msg']}")
    except (OSError, ValueError) as error:
        faults.append(f"{path}: not a {name} record: {' '.join(str(error).split())}")
    else:
        yield Artifact(path, record)
