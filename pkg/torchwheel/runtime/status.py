"""How the operators of an extension came to run, as data."""

import dataclasses
from pathlib import Path
from types import ModuleType
from typing import Literal

LoadStep = Literal["prebuilt", "jit cache", "jit build"]
Way = Literal["prebuilt", "jit cache", "jit build", "fallback", "waiting"]
"""What an operator runs on; "waiting": it will be built at its first call on a GPU."""


@dataclasses.dataclass(frozen=True)
class Refusal:
    """A step that was tried, or could not be, and why it came to nothing.

    Attributes:
        step: the step.
        reason: one line, and what fixes it.
        fault: whether that is worth a warning: a library that is there and does not load is, one
            that was never there is not.
    """

    step: LoadStep
    reason: str
    fault: bool = True

    def __str__(self) -> str:
        return f"{self.step}: {self.reason}"


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

    @property
    def reason(self) -> str:
        """One line: what it runs on, or why on nothing better."""
        if self.library is not None:
            return f"{self.way}: {self.library.name}"
        return "; ".join(map(str, self.refusals)) or self.way


@dataclasses.dataclass(frozen=True)
class ExtensionStatus:
    """An extension after its import.

    Attributes:
        package: e.g. "fusedops".
        mode: TORCHWHEEL_MODE as it was taken.
        operators: each operator family.
        module: the extension module, where the prebuilt library is one.
    """

    package: str
    mode: str
    operators: tuple[OperatorStatus, ...]
    module: ModuleType | None = None

    @property
    def library(self) -> Path | None:
        """The prebuilt library in use."""
        return next((one.library for one in self.operators if one.way == "prebuilt"), None)

    @property
    def native(self) -> bool:
        """Whether every operator runs on a native library."""
        return all(one.library is not None for one in self.operators)

    @property
    def reason(self) -> str:
        """One line on what the operators run on."""
        reasons = dict.fromkeys(one.reason for one in self.operators)
        return "; ".join(reasons)
