"""Requirements of wheels, the bundled packages that meet them, and installed ones."""

import contextlib
import dataclasses
import importlib.metadata
from collections.abc import Mapping, Sequence
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
from torchwheel.smoke.interpreter import Interpreter


def requirements(wheel: Wheel, python: Interpreter | None = None) -> list[Requirement]:
    """The requirements of the wheel on this machine, without its extras.

    `python` is the Python that it is installed for; the running one if not given.
    """
    required: list[Requirement] = wheel.metadata.requires_dist or []
    return [r for r in required if applies(r, python.markers if python else {})]


def applies(requirement: Requirement, markers: Mapping[str, str]) -> bool:
    """Whether a requirement is one on this machine, without extras.

    `markers` are the variables of markers that differ from the running Python's.
    """
    marker = requirement.marker
    return marker is None or marker.evaluate({"extra": "", **markers})


def check_installed(wheels: Sequence[Wheel], tools: Sequence[str]) -> None:
    """Refuse wheels if one of their requirements, or a tool of the run, is missing here.

    A wheel meets the requirements of the others, because they are installed together.
    """
    own = {wheel.name: str(wheel.version) for wheel in wheels}
    required = [("smoke", requirement) for requirement in map(Requirement, tools)]
    required += [(wheel.path.name, r) for wheel in wheels for r in requirements(wheel)]
    for user, requirement in required:
        installed = own.get(canonicalize_name(requirement.name)) or _installed_version(
            requirement.name
        )
        if installed is None:
            raise TorchwheelError(f"{user} needs {requirement}, which is not installed here")
        if not requirement.specifier.contains(installed, prereleases=True):
            raise TorchwheelError(
                f"{user} needs {requirement}, but {requirement.name} {installed} is installed here"
            )


def _installed_version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


BUNDLED_FOLDER = "bundled"


@dataclasses.dataclass(frozen=True)
class _WheelFile:
    path: Path
    name: NormalizedName
    version: Version


def bundled_with(wheel: Path) -> tuple[Path, ...]:
    """The wheels of the folder `bundled` beside `wheel`; and those beside it that it requires.

    The requirements of these wheels are followed too. Of two releases the newest that fits counts.
    """
    folder = _wheels_in(wheel.parent / BUNDLED_FOLDER)
    bundled = {file.name: file.path for file in reversed(folder)}
    neighbours = _wheels_in(wheel.parent)
    queue = [wheel, *bundled.values()]
    while queue:
        for requirement in requirements(read_wheel(queue.pop())):
            name, fits = canonicalize_name(requirement.name), requirement.specifier.contains
            fitting = (
                file
                for file in neighbours
                if file.name == name and fits(file.version, prereleases=True)
            )
            if name not in bundled and (file := next(fitting, None)):
                bundled[name] = file.path
                queue.append(file.path)
    return tuple(sorted(bundled.values()))


def _wheels_in(folder: Path) -> list[_WheelFile]:
    """The wheels of a folder, the newest first."""
    files = []
    for path in folder.glob("*.whl"):
        with contextlib.suppress(InvalidWheelFilename):  # not a wheel of ours
            name, version, _, _ = parse_wheel_filename(path.name)
            files.append(_WheelFile(path, name, version))
    return sorted(files, key=lambda file: file.version, reverse=True)
