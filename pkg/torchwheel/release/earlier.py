"""Wheels of earlier releases: they stay in the index if they are what was collected then."""

import json
from collections.abc import Iterator
from pathlib import Path

from torchwheel.errors import TorchwheelError, UsageError
from torchwheel.files import sha256
from torchwheel.index.contents import IndexedWheel
from torchwheel.release.report import REPORT, SCHEMA


def read_earlier(folder: Path) -> tuple[IndexedWheel, ...]:
    """The wheels of every release in `folder`, each release a folder with its report.

    Raises:
        TorchwheelError: a line for each release that is not as it was collected.
    """
    if not folder.is_dir():
        raise UsageError(f"a folder of earlier releases expected at {folder}, which is none")
    found: list[IndexedWheel] = []
    faults: list[str] = []
    # A release without wheels is somebody's own; one with wheels must prove them.
    for release in sorted({wheel.parent for wheel in folder.glob("*/*.whl")}):
        try:
            found += _wheels(release)
        except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
            faults.append(f"{release / REPORT}: not a report: {type(error).__name__}: {error}")
        except TorchwheelError as error:
            faults.append(str(error))
    if faults:
        raise TorchwheelError("\n".join(faults))
    return tuple(found)


def _wheels(release: Path) -> Iterator[IndexedWheel]:
    data = json.loads((release / REPORT).read_text(encoding="utf-8"))
    if data["schema"] != SCHEMA:
        raise ValueError(f"schema {SCHEMA} expected")
    for wheel in [*data["wheels"], *data["companions"]]:
        path = release / Path(wheel["file"]).name
        if sha256(path) != wheel["sha256"]:
            raise TorchwheelError(f"{path}: sha256 is not the one of {REPORT}")
        yield IndexedWheel(path, tuple(wheel["groups"]))
