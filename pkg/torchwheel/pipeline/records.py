"""The records of an output folder; they let the next run do only what is missing."""

import dataclasses
import json
import shutil
from pathlib import Path

from torchwheel.errors import UsageError
from torchwheel.files import sha256, write_text

FOLDER = ".torchwheel"


@dataclasses.dataclass(frozen=True)
class BuildRecord:
    """One finished variant; `key` names all inputs that made it."""

    variant: str
    key: str
    file: str
    sha256: str
    size: int
    archs: tuple[str, ...]
    tag_reason: str
    gates: int
    smoke: str
    seconds: float
    steps: dict[str, float]
    built_in: str = "host"
    """Reference of the image, or "host"."""
    cpu_seconds: dict[str, float] = dataclasses.field(default_factory=dict)
    """CPU seconds per step of the container, as far as they were counted."""
    peak_bytes: int | None = None
    """The most memory the container had when the build ended."""
    built_twice: bool = False
    """Whether a second build, elsewhere and from nothing, gave the same bytes."""
    bundled: dict[str, str] = dataclasses.field(default_factory=dict)
    """Hex SHA-256 of the wheels that it was tried with, by their names."""


def _path(dist: Path, variant: str) -> Path:
    return dist / FOLDER / f"{variant}.json"


def save_record(dist: Path, record: BuildRecord) -> None:
    """Write the record of a variant whose wheel lies in `dist`."""
    write_text(_path(dist, record.variant), json.dumps(dataclasses.asdict(record), indent=1) + "\n")


def _load(path: Path) -> BuildRecord | None:
    """A record whose wheel is there unchanged; none if a killed run left less than that."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        record = BuildRecord(**{**data, "archs": tuple(data["archs"])})
        wheel = path.parent.parent / record.file
        return record if wheel.is_file() and sha256(wheel) == record.sha256 else None
    except (OSError, ValueError, TypeError, KeyError):
        return None


def load_finished(dist: Path, variant: str, key: str) -> BuildRecord | None:
    """The record of `variant`, if it was made from `key`."""
    record = _load(_path(dist, variant))
    return record if record and record.key == key else None


def all_records(dist: Path) -> list[BuildRecord]:
    """Records of all finished variants in `dist`, by name."""
    return [record for path in sorted((dist / FOLDER).glob("*.json")) if (record := _load(path))]


def forget_record(dist: Path, variant: str) -> None:
    """Drop the record and the wheel it names, before another takes their place."""
    path = _path(dist, variant)
    try:
        name = json.loads(path.read_text(encoding="utf-8"))["file"]
    except (OSError, ValueError, TypeError, KeyError):
        return
    path.unlink(missing_ok=True)
    if Path(name).name == name:
        (dist / name).unlink(missing_ok=True)


def keep_rejected(wheel: Path, dist: Path) -> Path:
    """Copy a wheel into `dist`/rejected, under a name that pip does not take; returns the copy."""
    rejected = dist / "rejected" / f"{wheel.name}.rejected"
    rejected.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(wheel, rejected)
    return rejected


FILE = "request.call"


@dataclasses.dataclass(frozen=True)
class WheelsRequest:
    """What is to be built, and where: `container` or on the host."""

    variants: tuple[str, ...] = ()
    archs: tuple[str, ...] = ()
    container: bool = False


def save_request(dist: Path, request: WheelsRequest) -> None:
    """Remember a call."""
    write_text(dist / FOLDER / FILE, json.dumps(dataclasses.asdict(request)) + "\n")


def last_request(dist: Path) -> WheelsRequest:
    """The call before this one."""
    path = dist / FOLDER / FILE
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return WheelsRequest(tuple(data["variants"]), tuple(data["archs"]), bool(data["container"]))
    except FileNotFoundError:
        raise UsageError(f"--resume: no run has written to {dist} yet; name variants") from None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UsageError(f"--resume: {path} is not readable ({error}); name variants") from error
