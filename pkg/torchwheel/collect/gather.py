"""What was handed in: wheels and records, read out of folders; a bent record is a fault."""

import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from torchwheel.errors import UsageError
from torchwheel.pipeline import record as build_record
from torchwheel.smoke import record as smoke_record
from torchwheel.smoke.companions import FOLDER as COMPANIONS

T = TypeVar("T")

_BUILD = TypeAdapter(build_record.Record)
_SMOKE = TypeAdapter(smoke_record.Record)
SMOKE_FOLDER = "smoke"


@dataclasses.dataclass(frozen=True)
class Found(Generic[T]):
    """A record and the file it came from."""

    path: Path
    record: T


@dataclasses.dataclass(frozen=True)
class Gathered:
    """Everything of the folders that can matter to a release."""

    wheels: tuple[Path, ...]
    builds: tuple[Found[build_record.Record], ...]
    smokes: tuple[Found[smoke_record.Record], ...]
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
            *_files(places, f"{COMPANIONS}/*.whl", faults),
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
) -> Iterator[Found[T]]:
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
        yield Found(path, record)
