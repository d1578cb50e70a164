"""Writes a release folder, complete or not at all."""

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from torchwheel.errors import TorchwheelError, UsageError
from torchwheel.files import make_folder_atomically, sha256
from torchwheel.index.build import build_index
from torchwheel.index.contents import IndexedWheel, all_groups
from torchwheel.pipeline import records as build_record
from torchwheel.release.artifacts import SMOKE_FOLDER, BundledWheel, Candidate
from torchwheel.release.cases import ReleaseCase
from torchwheel.release.report import REPORT
from torchwheel.release.sdists import Sdist
from torchwheel.smoke import record as smoke_record

SUMS = "SHA256SUMS"
INDEX = "index"
PYPI = "pypi"
"""Folder of what PyPI accepts: wheels without a local version, and sdists."""


def check_target(out: Path) -> None:
    """Raise if `out` holds anything but an earlier release."""
    if out.exists() and not (out / REPORT).is_file() and (out.is_file() or any(out.iterdir())):
        raise UsageError(f"{out} is there and is no earlier release; remove it or name another")


def write_release(
    out: Path,
    cases: Sequence[ReleaseCase],
    bundled: Sequence[BundledWheel],
    sdists: Sequence[Sdist],
    groups: Mapping[str, tuple[str, ...]],
    uploaded: Mapping[str, str],
    report: str,
    earlier: Sequence[IndexedWheel],
) -> None:
    """Replace `out` with wheels, bundled packages, sdists, records, index, sums and report.

    Wheels of earlier releases are in the index alone.
    """
    with make_folder_atomically(out) as folder:
        (folder / PYPI).mkdir()
        (folder / REPORT).write_text(report, encoding="utf-8")
        sums = [_sum(sha256(folder / REPORT), REPORT)]
        indexed = list(earlier)
        bundled_groups = all_groups(groups.values())
        published: list[tuple[Candidate | BundledWheel, tuple[str, ...]]] = [
            *((case.candidate, groups[case.variant.id]) for case in cases),
            *((package, bundled_groups) for package in bundled),
        ]
        for source, wheel_groups in published:
            wheel = _copy(source, folder)
            indexed.append(IndexedWheel(wheel, wheel_groups, uploaded[source.sha256]))
            sums.append(_sum(source.sha256, wheel.name))
            if source.wheel.version.local is None:
                os.link(wheel, folder / PYPI / wheel.name)
        for sdist in sdists:
            copy = Path(shutil.copyfile(sdist.path, folder / sdist.path.name))
            sums.append(_sum(sha256(copy), copy.name))
            os.link(copy, folder / PYPI / copy.name)
        for case in cases:
            _write_records(case, folder)
        build_index(indexed, folder / INDEX)
        (folder / SUMS).write_text("".join(sums), encoding="utf-8")


def _copy(wheel: Candidate | BundledWheel, folder: Path) -> Path:
    """Copy a wheel; the copy must have the bytes that were checked."""
    copy = Path(shutil.copyfile(wheel.path, folder / wheel.path.name))
    if sha256(copy) != wheel.sha256:
        raise TorchwheelError(f"{wheel.path} changed while it was copied; run again")
    return copy


def _write_records(case: ReleaseCase, folder: Path) -> None:
    for build in case.builds:
        build_record.save_record(folder, build)
    (folder / SMOKE_FOLDER).mkdir(exist_ok=True)
    for number, smoke in enumerate(case.smokes, start=1):
        file = folder / SMOKE_FOLDER / f"{case.variant.id}.{number}.json"
        file.write_text(smoke_record.dump_smoke(smoke), encoding="utf-8")


def _sum(digest: str, name: str) -> str:
    """A line of SHA256SUMS, as `sha256sum -c` reads it."""
    return f"{digest}  {name}\n"
