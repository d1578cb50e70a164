"""What wheels require, which bundled packages serve them, and what is installed."""

import contextlib
import dataclasses
import importlib.metadata
from collections.abc import Sequence
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import (
    InvalidWheelFilename,
    NormalizedName,
    canonicalize_name,
    parse_wheel_filename,
)
from packaging.version import Version

from torchwheel.errors import TorchwheelError
from torchwheel.inspect.wheel import Wheel, read_wheel


def requirements(wheel: Wheel) -> list[Requirement]:
    """What the wheel requires on this machine, its extras left out."""
    every: list[Requirement] = wheel.metadata.requires_dist or []
    return [one for one in every if not one.marker or one.marker.evaluate({"extra": ""})]


def check_installed(wheels: Sequence[Wheel], tools: Sequence[str]) -> None:
    """Raise one line if a requirement of the wheels, or a tool of the run, is not met here.

    A wheel counts as installed for the others: they are tried together.
    """
    own = {wheel.name: str(wheel.version) for wheel in wheels}
    wanted = [("smoke", one) for one in map(Requirement, tools)]
    wanted += [(wheel.path.name, one) for wheel in wheels for one in requirements(wheel)]
    for who, requirement in wanted:
        found = own.get(canonicalize_name(requirement.name)) or _version(requirement.name)
        if found is None:
            raise TorchwheelError(f"{who} needs {requirement}, which is not installed here")
        if not requirement.specifier.contains(found, prereleases=True):
            raise TorchwheelError(
                f"{who} needs {requirement}, but {requirement.name} {found} is installed here"
            )


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


BUNDLED_FOLDER = "bundled"


@dataclasses.dataclass(frozen=True)
class _Near:
    path: Path
    name: NormalizedName
    version: Version


def bundled_with(wheel: Path) -> tuple[Path, ...]:
    """The wheels of the folder `bundled` beside `wheel`; and those beside it that it requires.

    What these require in turn is looked for too. Of two releases the newest that fits is taken.
    """
    found = {one.name: one.path for one in reversed(_near(wheel.parent / BUNDLED_FOLDER))}
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
