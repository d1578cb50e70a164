"""A wheel that was handed in, judged by the gates again."""

import dataclasses
from pathlib import Path

from torchwheel.check.gates import GateResult, run_gates
from torchwheel.check.limits import Limits
from torchwheel.claims import Claims
from torchwheel.files import sha256
from torchwheel.inspect.errors import WheelError
from torchwheel.inspect.wheel import Wheel


@dataclasses.dataclass(frozen=True)
class Candidate:
    """One wheel as it lies there."""

    wheel: Wheel
    claims: Claims
    sha256: str
    gates: tuple[GateResult, ...]

    @property
    def path(self) -> Path:
        """The file."""
        return self.wheel.path


def examine(wheel: Wheel, limits: Limits) -> Candidate:
    """Hash and judge a wheel; a WheelError says why it cannot be one of ours."""
    path = wheel.path
    if wheel.claims is None:
        raise WheelError(f"{path}: claims nothing (no torchwheel.json): not made by this pipeline")
    return Candidate(wheel, wheel.claims, sha256(path), run_gates(path, limits))
