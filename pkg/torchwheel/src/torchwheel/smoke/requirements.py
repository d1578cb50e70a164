"""What a wheel requires on a Python of this machine, and what meets it: wheels, or a lock.

A lock of a clean environment says what is installed, each file by its sha256. A project has a
folder of them, one for each torch that its wheels are tried with; they are requirements files as
`uv pip compile --generate-hashes` writes them.
"""

import contextlib
import importlib.metadata
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.utils import (
    InvalidWheelFilename,
    NormalizedName,
    canonicalize_name,
    parse_wheel_filename,
)
from packaging.version import Version

from torchwheel import text_files
from torchwheel.inspect.wheel import Wheel, read_wheel
from torchwheel.interpreters import Interpreter
from torchwheel_runtime.errors import TorchwheelError, UsageError
from torchwheel_runtime.text import escape, join_names


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


def bundled_with(wheel: Path) -> tuple[Path, ...]:
    """The wheels of the folder `bundled` beside `wheel`; and those beside it that it requires.

    The requirements of these wheels are followed too. Of two releases the newest that fits counts.
    """
    bundled = {name: path for name, _, path in reversed(_wheels_in(wheel.parent / BUNDLED_FOLDER))}
    neighbours = _wheels_in(wheel.parent)
    queue = [wheel, *bundled.values()]
    while queue:
        for requirement in requirements(read_wheel(queue.pop())):
            wanted, fits = canonicalize_name(requirement.name), requirement.specifier.contains
            fitting = (
                path
                for name, version, path in neighbours
                if name == wanted and fits(version, prereleases=True)
            )
            if wanted not in bundled and (path := next(fitting, None)):
                bundled[wanted] = path
                queue.append(path)
    return tuple(sorted(bundled.values()))


def _wheels_in(folder: Path) -> list[tuple[NormalizedName, Version, Path]]:
    """The wheels of a folder by their names and versions, the newest first."""
    files = []
    for path in folder.glob("*.whl"):
        with contextlib.suppress(InvalidWheelFilename):  # not a wheel of ours
            name, version, _, _ = parse_wheel_filename(path.name)
            files.append((name, version, path))
    return sorted(files, key=lambda file: file[1], reverse=True)


LOCK_OPTIONS = ("--require-hashes", "--only-binary=:all:", "--requirement")
"""Of pip and of uv alike; the lock follows."""
_HASH = re.compile(r"\s--hash=(?:sha256:)?(\S+)")
_TORCH = canonicalize_name("torch")


class Pin(NamedTuple):
    """What a lock says of a project: its version, and the hashes of the files that may be taken."""

    version: Version
    hashes: frozenset[str]


Pins = Mapping[NormalizedName, Pin]
"""What a lock pins for one Python of this machine."""


def find_lock(folder: Path, required: Sequence[str], markers: Mapping[str, str]) -> Path:
    """The lock of a folder that meets all requirements; of several the one of the newest torch.

    Args:
        folder: the locks.
        required: requirements, e.g. "torch==2.13.0", "pytest".
        markers: the variables of markers that differ from this Python's.

    Raises:
        UsageError: there is none, or a file of the folder is no lock.
    """
    asked = [one for one in map(Requirement, required) if applies(one, markers)]
    locks = {path: read_lock(path, markers) for path in sorted(folder.glob("*.txt"))}
    fitting = [path for path, pins in locks.items() if all(is_pinned(one, pins) for one in asked)]
    if not fitting:
        names = join_names([path.name for path in locks]) or "no lock"
        raise UsageError(
            f"{escape(str(folder))}: expected a lock with {', '.join(required)}, found {names}; "
            "add one (docs/ci.md), or take smoke.locks out of matrix.yaml"
        )
    torches = {path: pins[_TORCH].version for path, pins in locks.items() if _TORCH in pins}
    return max(fitting, key=lambda path: torches.get(path, Version("0")))


def is_pinned(requirement: Requirement, pins: Pins) -> bool:
    """Whether a lock pins a version that a requirement accepts."""
    pin = pins.get(canonicalize_name(requirement.name))
    return pin is not None and requirement.specifier.contains(pin.version, prereleases=True)


def read_lock(path: Path, markers: Mapping[str, str]) -> Pins:
    """The pins of a lock that apply.

    Raises:
        UsageError: a line is no requirement with `==` and a hash.
    """
    pins = {}
    for number, line in _logical_lines(text_files.read_text(path)):
        text, hashes = _HASH.sub("", line), frozenset(_HASH.findall(line))
        try:
            requirement = Requirement(text.strip())
            (specifier,) = requirement.specifier
            version = Version(specifier.version)
            chosen = applies(requirement, markers)
        except ValueError:
            hashes = frozenset()
        if not hashes or specifier.operator not in ("==", "==="):
            raise UsageError(
                f"{escape(str(path))}:{number}: expected NAME==VERSION and its --hash, found "
                f"{escape(text.strip()[:80])}"
            )
        if chosen:
            pins[canonicalize_name(requirement.name)] = Pin(version, hashes)
    return pins


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """The lines of requirements, each with the number of its first line."""
    lines = enumerate(text.splitlines(), 1)
    for number, line in lines:
        continued = line
        while continued.endswith("\\"):
            continued = continued[:-1] + next(lines, (0, ""))[1]
        if continued.strip() and not continued.lstrip().startswith("#"):
            yield number, continued
