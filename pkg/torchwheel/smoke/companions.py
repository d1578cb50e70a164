"""Finds a wheel's companions: wheels that it requires and that are published with it."""

import contextlib
import dataclasses
from pathlib import Path

from packaging.utils import (
    InvalidWheelFilename,
    NormalizedName,
    canonicalize_name,
    parse_wheel_filename,
)
from packaging.version import Version

from torchwheel.inspect.wheel import read_wheel
from torchwheel.smoke.requirements import requirements

FOLDER = "companions"


@dataclasses.dataclass(frozen=True)
class _Near:
    path: Path
    name: NormalizedName
    version: Version


def companions_of(wheel: Path) -> tuple[Path, ...]:
    """The wheels of the folder `companions` beside `wheel`; and those beside it that it requires.

    What these require in turn is looked for too. Of two releases the newest that fits is taken.
    """
    found = {one.name: one.path for one in reversed(_near(wheel.parent / FOLDER))}
    beside = _near(wheel.parent)
    asking = [wheel, *found.values()]
    while asking:
        for wanted in requirements(read_wheel(asking.pop())):
            name = canonicalize_name(wanted.name)
            fits = wanted.specifier.contains
            fitting = (o for o in beside if o.name == name and fits(o.version, prereleases=True))
            if name not in found and (one := next(fitting, None)):
                found[name] = one.path
                asking.append(one.path)
    return tuple(sorted(found.values()))


def _near(folder: Path) -> list[_Near]:
    """The wheels of a folder, the newest first."""
    found = []
    for path in folder.glob("*.whl"):
        with contextlib.suppress(InvalidWheelFilename):  # somebody's own
            name, version, _, _ = parse_wheel_filename(path.name)
            found.append(_Near(path, name, version))
    return sorted(found, key=lambda one: one.version, reverse=True)
