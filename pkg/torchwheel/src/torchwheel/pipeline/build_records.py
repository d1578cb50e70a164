"""The records of an output folder, and their table; the next run skips what they show finished."""

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from torchwheel.compilers.compiler_cache import CacheUse
from torchwheel.findings import CheckResult
from torchwheel.matrix.variants import Variant
from torchwheel.pipeline.inputs import Clock
from torchwheel.smoke.requirements import BUNDLED_FOLDER
from torchwheel.smoke.smoke_record import SmokeRecord
from torchwheel_runtime.errors import MalformedError, UsageError
from torchwheel_runtime.files import sha256, write_text
from torchwheel_runtime.json_files import FileName, read_json
from torchwheel_runtime.text import WIDTH, detail_lines, size_text, table_rows

FOLDER = ".torchwheel"


@dataclasses.dataclass(frozen=True)
class BuiltWheel:
    """A built wheel, before its gates.

    Attributes:
        wheel: the file.
        smoke: the record of the tests that its container ran; None where torchwheel runs them.
        cpu_seconds: CPU seconds per step of a container, or of a universal wheel per part, as far
            as they are counted.
        peak_bytes: the most memory the container had when the build ended.
        cache: what the compiler cache did for an ordinary project's build, if it was counted.
    """

    wheel: Path
    smoke: SmokeRecord | None = None
    cpu_seconds: dict[str, float] = dataclasses.field(default_factory=dict)
    peak_bytes: int | None = None
    cache: CacheUse | None = None


@dataclasses.dataclass(frozen=True)
class BuildRecord:
    """One finished wheel; `key` is the hash of its inputs."""

    variant: str
    key: str
    file: FileName
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
    """CPU seconds per step of the container, or per part of a universal wheel, if counted."""
    peak_bytes: int | None = None
    """The most memory the container had when the build ended."""
    cache: CacheUse | None = None
    """Files that the compiler cache had for an ordinary project, and that were compiled."""
    built_twice: bool = False
    """Whether a second build, elsewhere and without caches, gave the same bytes."""
    bundled: dict[str, str] = dataclasses.field(default_factory=dict)
    """Hex SHA-256 of the bundled packages that it was tried with, by file name."""
    sources: str = ""
    """Digest of the project's files that git knows."""
    kernels: dict[str, str] = dataclasses.field(default_factory=dict)
    """Hex SHA-256 of the manifests of the compiled kernels that it was linked from, by folder."""


def record_wheel(
    variant: Variant,
    key: str,
    wheel: Path,
    gates: Sequence[CheckResult],
    smoke: str,
    clock: Clock,
) -> BuildRecord:
    """The record of a finished wheel, with the fields that every build has.

    `smoke` is the verdict of its smoke tests; `clock` has the seconds of each step.
    """
    return BuildRecord(
        variant=variant.id,
        key=key,
        file=wheel.name,
        sha256=sha256(wheel),
        size=wheel.stat().st_size,
        archs=tuple(variant_archs(variant)),
        tag_reason=next(gate.says for gate in gates if gate.name == "platform-tag"),
        gates=len(gates),
        smoke=smoke,
        seconds=clock.total,
        steps=clock.seconds,
    )


def variant_archs(variant: Variant) -> Iterator[str]:
    """The archs of a variant; of a universal one, for each kernel library after its name."""
    if variant.toolkit:
        yield from map(str, variant.toolkit.archs)
    for part in variant.parts:
        if part.part == "kernels" and part.toolkit:
            yield f"{part.library}:"
            yield from map(str, part.toolkit.archs)


def _path(dist: Path, variant: str) -> Path:
    return dist / FOLDER / f"{variant}.json"


def save_record(dist: Path, record: BuildRecord) -> None:
    """Write the record of a wheel in `dist`."""
    write_text(_path(dist, record.variant), record_text(record))


def record_text(record: BuildRecord) -> str:
    """A record as JSON."""
    return json.dumps(dataclasses.asdict(record), indent=1) + "\n"


def _load(path: Path) -> BuildRecord | None:
    """A record whose wheel is present and unchanged; None otherwise."""
    try:
        record = read_json(path, BuildRecord)
        wheel = path.parent.parent / record.file
        return record if wheel.is_file() and sha256(wheel) == record.sha256 else None
    except (OSError, MalformedError):
        return None


def last_seconds(dist: Path, variant: str) -> Mapping[str, float]:
    """The seconds of each step of a variant's last build; empty if there is no record of it."""
    try:
        return read_json(_path(dist, variant), BuildRecord).steps
    except (OSError, MalformedError):
        return {}


def load_finished(dist: Path, variant: str, key: str) -> BuildRecord | None:
    """The record of `variant` if it has this `key` and its wheel is present."""
    record = _load(_path(dist, variant))
    return record if record and record.key == key else None


def all_records(dist: Path) -> list[BuildRecord]:
    """The records of all finished variants in `dist`, by name."""
    return [record for path in sorted((dist / FOLDER).glob("*.json")) if (record := _load(path))]


@dataclasses.dataclass(frozen=True)
class _RecordedWheel:
    """The field of a build record, of any version of torchwheel, that names the wheel."""

    file: FileName


def forget_record(dist: Path, variant: str) -> None:
    """Remove the record of `variant` and its wheel, before new ones take their place."""
    path = _path(dist, variant)
    try:
        wheel = dist / read_json(path, _RecordedWheel, others=True).file
        # A record that was edited could name a file that is no wheel.
        if wheel.suffix == ".whl" and wheel.is_file():
            wheel.unlink()
        path.unlink()
    except (OSError, MalformedError):
        return


REQUEST_FILE = "request.call"


@dataclasses.dataclass(frozen=True)
class Selection:
    """The part of a call that --resume repeats: variants, archs, in a container or on the host."""

    variants: tuple[str, ...] = ()
    archs: tuple[str, ...] = ()
    container: bool = False


@dataclasses.dataclass(frozen=True)
class BuildCall:
    """What calls of `torchwheel wheels` and `kernels` have in common.

    Each field is the option of its name.
    """

    matrix: Path
    archs: tuple[str, ...] = ()
    container: bool = False
    launcher: bool = True
    twice: bool = False


@dataclasses.dataclass(frozen=True)
class WheelsRequest(BuildCall):
    """One call of `torchwheel wheels`. Each field is the option of its name.

    An ordinary project is built twice only if `gates.reproducible` asks for it, too. Without
    `at_once` as many variants are in work as cores and memory allow.
    """

    variants: tuple[str, ...] = ()
    dist: Path = Path("dist")
    at_once: int | None = None
    kernels: Path | None = None
    kernels_only: bool = False
    locked: bool = False

    @property
    def selection(self) -> Selection:
        """The part that --resume repeats."""
        return Selection(self.variants, self.archs, self.container)


def save_request(dist: Path, selection: Selection) -> None:
    """Write down what a call is for, for --resume."""
    write_text(dist / FOLDER / REQUEST_FILE, json.dumps(dataclasses.asdict(selection)) + "\n")


def last_request(dist: Path) -> Selection:
    """What the call before this one was for, for --resume."""
    path = dist / FOLDER / REQUEST_FILE
    try:
        return read_json(path, Selection, complete=True, do="name variants")
    except FileNotFoundError:
        raise UsageError(f"--resume: no run has written to {dist} yet; name variants") from None
    except MalformedError as error:
        raise UsageError(f"--resume: {error}") from error


def report_table(records: Sequence[BuildRecord], fresh: Sequence[str]) -> str:
    """One row per wheel; its file, archs and tag below, as file names are long.

    The bundled packages follow at the end. `fresh` names the variants that this run built.
    """
    cells = [("variant", "size", "gates", "seconds", "cpu", "smoke")]
    for record in records:
        seconds = f"{record.seconds:.1f}" if record.variant in fresh else "kept"
        cpu = f"{sum(record.cpu_seconds.values()):.0f}" if record.cpu_seconds else "-"
        size, gates = size_text(record.size), f"{record.gates:>2} ok"
        cells.append((record.variant, size, gates, seconds, cpu, record.smoke))
    head, *rows = table_rows("<7 >8 >5 >7 >5 <", cells)
    lines = [head, "-" * WIDTH]
    for record, row in zip(records, rows, strict=True):
        lines.append(row)
        lines += detail_lines("file", record.file)
        if record.archs:
            lines += detail_lines("archs", " ".join(record.archs))
        lines += detail_lines("tag", record.tag_reason)
    bundled = sorted({name for record in records for name in record.bundled})
    return "\n".join([*lines, *(f"with {BUNDLED_FOLDER}/{name}" for name in bundled)])
