"""The companions that were handed in: as many as the matrix names, each the same everywhere."""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

from packaging.utils import canonicalize_name

from torchwheel.check.companion import read_companion
from torchwheel.errors import TorchwheelError
from torchwheel.files import sha256
from torchwheel.index.model import IndexedWheel
from torchwheel.inspect.wheel import Wheel
from torchwheel.matrix.model import Matrix
from torchwheel.shown import listed


@dataclasses.dataclass(frozen=True)
class Companion:
    """One companion, as it lies in every artifact."""

    wheel: Wheel
    sha256: str

    @property
    def path(self) -> Path:
        """The file."""
        return self.wheel.path


def is_companion(wheel: Wheel, matrix: Matrix) -> bool:
    """Whether a wheel was made for no variant, and is not of the project itself."""
    return wheel.claims is None and wheel.name != canonicalize_name(matrix.project.name)


def distinct(wheels: Sequence[Wheel]) -> tuple[tuple[Companion, ...], list[str]]:
    """Each companion once, and a line for each that is none or differs between artifacts."""
    found: dict[str, Companion] = {}
    faults: list[str] = []
    for wheel in wheels:
        digest = sha256(wheel.path)
        known = found.setdefault(wheel.path.name, Companion(wheel, digest))
        if known.sha256 != digest:
            faults.append(f"{wheel.path}: sha256 {digest}; {known.path} has {known.sha256}")
    for companion in found.values():
        try:
            read_companion(companion.path)
        except TorchwheelError as error:
            faults.append(str(error))
    return tuple(found[name] for name in sorted(found)), faults


def complete(
    matrix: Matrix, companions: Sequence[Companion], earlier: Sequence[IndexedWheel]
) -> Iterator[str]:
    """One wheel for each that the matrix names; a name that was published keeps its bytes."""
    wanted = matrix.project.companions
    if len(companions) != len(wanted):
        came = listed(one.path.name for one in companions) or "none"
        expected = f"one for each of {listed(wanted)}" if wanted else "none"
        yield f"companions: {came}; expected {expected}"
    published = {wheel.path.name: wheel.path for wheel in earlier}
    for one in companions:
        before = published.get(one.path.name)
        if before and sha256(before) != one.sha256:
            yield f"{one.path}: {before} was published with other bytes; raise its version"
