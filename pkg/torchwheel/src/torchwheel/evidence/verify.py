"""`torchwheel verify`: the checks of one file, a line each."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path

from torchwheel.evidence.files import BUNDLES, Attestation, ReadBundle, judge_attestations
from torchwheel.evidence.policy import Policy
from torchwheel.findings import CheckResult
from torchwheel_runtime.errors import MalformedError, TorchwheelError
from torchwheel_runtime.files import sha256
from torchwheel_runtime.json_files import FileName, parse_json, read_bounded
from torchwheel_runtime.os_errors import explain
from torchwheel_runtime.text import escape, quote, table_rows


def verify(
    path: Path,
    bundles: Sequence[Path] | None,
    policy: Policy,
    read: ReadBundle,
    *,
    known: str | None = None,
    sums: Path | None = None,
    date: Callable[[Path, datetime], CheckResult] | None = None,
) -> tuple[CheckResult, ...]:
    """Check the hash of a file and who signed it.

    Args:
        path: the file.
        bundles: files with attestations; default: those beside the file.
        policy: whose signature it must have.
        read: verifies a bundle.
        known: the sha256 that it must have.
        sums: SHA256SUMS or catalogue.json with its sha256.
        date: holds a date in the file to the time of the signature.

    Raises:
        TorchwheelError: the file cannot be read, or has no date though one is expected.
    """
    if path.exists() and not path.is_file():
        raise TorchwheelError(f"{escape(str(path))}: expected a file, found a device")
    try:
        digest = sha256(path)
    except OSError as error:
        raise TorchwheelError(explain(error)) from None
    checks = [_judge_hash(path, digest, known, sums)]
    own: list[Attestation] = []
    broken: list[str] = []
    if bundles is None:
        beside = (Path(BUNDLES).name, BUNDLES)
        bundles = [one for pattern in beside for one in sorted(path.parent.glob(pattern))]
    for bundle in bundles:
        try:
            own += [a for a in read(bundle) if (path.name, digest) in a.subjects]
        except TorchwheelError as error:
            broken.append(str(error))
    if not own:
        says = f"expected an attestation of {escape(path.name)} with this hash, found none"
        return (*checks, CheckResult("signature", False, "; ".join([says, *broken])))
    best, says_of_signer = judge_attestations(own, policy)
    time = f"{best.signed:%Y-%m-%d %H:%M} UTC"
    where = escape(str(best.bundle))
    checks.append(CheckResult("signature", True, f"{where}, signed and logged {time}"))
    if date is not None:
        checks.append(date(path, best.signed))
    checks += says_of_signer
    run = f"{escape(best.signer.run)}, on a {escape(best.signer.runner)} runner"
    return (*checks, CheckResult("run", True, run))


def files_in(paths: Sequence[Path], bundles: Sequence[Path] | None) -> Iterator[Path]:
    """The paths, with all files of a folder in its place, apart from bundles.

    Raises:
        TorchwheelError: a folder without a file, of which nothing would be verified.
    """
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        every = sorted(found for found in path.rglob("*") if not found.is_dir())
        is_bundle = Path(BUNDLES).name
        files = [one for one in every if one not in (bundles or ()) and not one.match(is_bundle)]
        if not files:
            raise TorchwheelError(f"{escape(str(path))}: expected files, found none; name another")
        yield from files


def verify_text(path: Path, checks: Sequence[CheckResult]) -> str:
    """The file's name, then one line a check."""
    cells = [("ok" if check.ok else "FAILED", check.name, check.says) for check in checks]
    rows = [escape(path.name), *table_rows("<6 <10 <", cells)]
    return "".join(f"{row}\n" for row in rows)


def _judge_hash(path: Path, digest: str, known: str | None, sums: Path | None) -> CheckResult:
    expected = [] if known is None else [("--sha256", known.lower())]
    if sums is not None:
        where = escape(str(sums))
        listed = dict(listed_files(sums)).get(path.name)
        if listed is None:
            says = f"expected {escape(path.name)} in {where}, found no such name"
            return CheckResult("sha256", False, says)
        expected.append((where, listed))
    for where, one in expected:
        if one != digest:
            return CheckResult("sha256", False, f"expected {quote(one)} of {where}, found {digest}")
    names = " and ".join(where for where, _ in expected)
    return CheckResult("sha256", True, f"{digest}, as {names} says" if expected else digest)


@dataclasses.dataclass(frozen=True)
class _Listed:
    """A file of a catalogue."""

    file: FileName
    sha256: str


@dataclasses.dataclass(frozen=True)
class _Catalogue:
    """A catalogue, as far as hashes go."""

    wheels: tuple[_Listed, ...]
    sdists: tuple[_Listed, ...] = ()


def listed_files(sums: Path) -> Iterator[tuple[str, str]]:
    """File names and hashes of SHA256SUMS or a catalogue."""
    where = escape(str(sums))
    try:
        content = read_bounded(sums)
    except OSError as error:
        raise TorchwheelError(explain(error)) from None
    if sums.suffix == ".json":
        catalogue = parse_json(content, _Catalogue, str(sums), others=True)
        yield from ((one.file, one.sha256) for one in (*catalogue.wheels, *catalogue.sdists))
        return
    try:
        lines = content.decode("utf-8").splitlines()
    except UnicodeDecodeError:
        raise MalformedError(where, "expected UTF-8, found other bytes") from None
    for number, line in enumerate(lines, start=1):
        digest, _, name = line.partition(" ")
        if len(digest) != 64 or not name[1:]:
            reason = f"line {number}: expected a hash and a file name, found {quote(line)}"
            raise MalformedError(where, reason)
        yield name[1:], digest
