"""How the operators of an extension came to run, as data."""

import dataclasses
from pathlib import Path
from typing import Literal

Step = Literal["prebuilt", "jit cache", "jit build"]
Way = Literal["prebuilt", "jit cache", "jit build", "fallback", "waiting"]
"""What an operator runs on; "waiting": it will be built at its first call on a GPU."""


@dataclasses.dataclass(frozen=True)
class Refusal:
    """A step that was tried, or could not be, and why it came to nothing."""

    step: Step
    reason: str


@dataclasses.dataclass(frozen=True)
class OperatorStatus:
    """One operator family.

    Attributes:
        operator: its name, e.g. "bias_act".
        ops: what it registers with torch, e.g. ("fusedops::bias_gelu", …).
        way: what it runs on.
        library: the native library's file, if there is one.
        refusals: the steps before that came to nothing, in order.
    """

    operator: str
    ops: tuple[str, ...]
    way: Way
    library: Path | None = None
    refusals: tuple[Refusal, ...] = ()


@dataclasses.dataclass(frozen=True)
class ExtensionStatus:
    """An extension after its import; `mode` is TORCHWHEEL_MODE as it was taken."""

    package: str
    mode: str
    operators: tuple[OperatorStatus, ...]
