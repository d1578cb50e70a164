"""Locks of a clean environment: what is installed, each file by its sha256.

A project has a folder of them, one for each torch that its wheels are tried with; they are
requirements files as `uv pip compile --generate-hashes` writes them.
"""

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name
from packaging.version import Version

from torchwheel import text_files
from torchwheel.errors import UsageError
from torchwheel.smoke.requirements import applies
from torchwheel.text import escape, join_names

PATTERN = "*.txt"
OPTIONS = ("--require-hashes", "--only-binary=:all:", "--requirement")
"""Of pip and of uv alike; the lock follows."""
_HASH = re.compile(r"\s--hash=\S+")
_TORCH = canonicalize_name("torch")


@dataclasses.dataclass(frozen=True)
class Lock:
    """A lock, and the versions that it pins for one Python of this machine."""

    path: Path
    pins: Mapping[NormalizedName, Version]

    def meets(self, required: Requirement) -> bool:
        """Whether what it installs meets a requirement."""
        version = self.pins.get(canonicalize_name(required.name))
        return version is not None and required.specifier.contains(version, prereleases=True)


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
    locks = [read_lock(path, markers) for path in sorted(folder.glob(PATTERN))]
    fitting = [lock for lock in locks if all(map(lock.meets, asked))]
    if not fitting:
        names = join_names([lock.path.name for lock in locks]) or "no lock"
        raise UsageError(
            f"{escape(str(folder))}: expected a lock with {', '.join(required)}, found {names}; "
            "add one (docs/ci.md), or take smoke.locks out of matrix.yaml"
        )
    return max(fitting, key=lambda lock: lock.pins.get(_TORCH, Version("0"))).path


def read_lock(path: Path, markers: Mapping[str, str]) -> Lock:
    """The pins of a lock that apply.

    Raises:
        UsageError: a line is no requirement with `==` and a hash.
    """
    pins = {}
    for number, line in _logical_lines(text_files.read_text(path)):
        text, hashes = _HASH.subn("", line)
        try:
            requirement = Requirement(text.strip())
            (specifier,) = requirement.specifier
            version = Version(specifier.version)
            chosen = applies(requirement, markers)
        except ValueError:
            hashes = 0
        if not hashes or specifier.operator not in ("==", "==="):
            raise UsageError(
                f"{escape(str(path))}:{number}: expected NAME==VERSION and its --hash, found "
                f"{escape(text.strip()[:80])}"
            )
        if chosen:
            pins[canonicalize_name(requirement.name)] = version
    return Lock(path, pins)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """The lines of requirements, each with the number of its first line."""
    lines = enumerate(text.splitlines(), 1)
    for number, line in lines:
        continued = line
        while continued.endswith("\\"):
            continued = continued[:-1] + next(lines, (0, ""))[1]
        if continued.strip() and not continued.lstrip().startswith("#"):
            yield number, continued
