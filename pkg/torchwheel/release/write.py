"""Writes a release folder: complete, or not at all."""

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from torchwheel.errors import TorchwheelError, UsageError
from torchwheel.files import make_folder_atomically, sha256
from torchwheel.index.build import build_index
from torchwheel.index.contents import IndexedWheel, all_groups
from torchwheel.pipeline import records as build_record
from torchwheel.release.cases import ReleaseCase
from torchwheel.release.gather import SMOKE_FOLDER, BundledWheel, Candidate
from torchwheel.release.report import REPORT
from torchwheel.smoke import record as smoke_record

SUMS = "SHA256SUMS"
INDEX = "index"
PYPI = "pypi"
"""Folder of the wheels that PyPI takes: those without a local version."""


def check_target(out: Path) -> None:
    """Refuse to replace anything but an earlier release."""
    if out.exists() and not (out / REPORT).is_file() and (out.is_file() or any(out.iterdir())):
        raise UsageError(f"{out} is there and is no earlier release; remove it or name another")


def write(
    out: Path,
    cases: Sequence[ReleaseCase],
    bundled: Sequence[BundledWheel],
    groups: Mapping[str, tuple[str, ...]],
    report: str,
    earlier: Sequence[IndexedWheel],
) -> None:
    """Replace `out` with wheels, bundled packages, the records, the index, the sums and the report.

    Wheels of earlier releases are in the index alone.
    """
    with make_folder_atomically(out) as aside:
        (aside / PYPI).mkdir()
        (aside / REPORT).write_text(report, encoding="utf-8")
        sums = [_sum(sha256(aside / REPORT), REPORT)]
        indexed = list(earlier)
        every = all_groups(groups.values())
        published: list[tuple[Candidate | BundledWheel, tuple[str, ...]]] = [
            *((case.candidate, groups[case.variant.id]) for case in cases),
            *((package, every) for package in bundled),
        ]
        for one, offered in published:
            wheel = _copied(one, aside)
            indexed.append(IndexedWheel(wheel, offered))
            sums.append(_sum(one.sha256, wheel.name))
            if one.wheel.version.local is None:
                os.link(wheel, aside / PYPI / wheel.name)
        for case in cases:
            _records(case, aside)
        build_index(indexed, aside / INDEX)
        (aside / SUMS).write_text("".join(sums), encoding="utf-8")


def _copied(one: Candidate | BundledWheel, aside: Path) -> Path:
    """The wheel's copy; what was judged is what is published."""
    copy = Path(shutil.copyfile(one.path, aside / one.path.name))
    if sha256(copy) != one.sha256:
        raise TorchwheelError(f"{one.path} changed while it was copied; run again")
    return copy


def _records(case: ReleaseCase, aside: Path) -> None:
    for build in case.builds:
        build_record.save_record(aside, build)
    (aside / SMOKE_FOLDER).mkdir(exist_ok=True)
    for number, smoke in enumerate(case.smokes, start=1):
        file = aside / SMOKE_FOLDER / f"{case.variant.id}.{number}.json"
        file.write_text(smoke_record.dump_smoke(smoke), encoding="utf-8")


def _sum(digest: str, name: str) -> str:
    """A line that `sha256sum -c` reads."""
    return f"{digest}  {name}\n"
