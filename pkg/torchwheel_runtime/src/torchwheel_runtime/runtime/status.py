"""What the operators of an extension run on, as data."""

import dataclasses
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, cast, get_args

MODE_VARIABLE = "TORCHWHEEL_MODE"

Mode = Literal["auto", "prebuilt", "jit", "fallback", "error"]
"""auto: prebuilt, else built at first use, else plain PyTorch. prebuilt: build nothing. jit: ignore
the prebuilt library. fallback: plain PyTorch. error: like auto, but plain PyTorch in place of a
GPU's kernels is an error."""


def read_mode(environ: Mapping[str, str]) -> Mode:
    """The mode that TORCHWHEEL_MODE names; an unknown one is a warning, and auto."""
    if problem := mode_problem(environ):
        warn(f"{problem}; auto is used")
        return "auto"
    return cast("Mode", environ.get(MODE_VARIABLE) or "auto")


def mode_problem(environ: Mapping[str, str]) -> str | None:
    """Why TORCHWHEEL_MODE names no mode, and which may be meant; None if it names one."""
    name = environ.get(MODE_VARIABLE) or "auto"
    modes = get_args(Mode)
    if name in modes:
        return None
    from torchwheel_runtime.text import quote, suggestion  # noqa: PLC0415 - not for an import

    text = f"{MODE_VARIABLE}: expected one of {', '.join(modes)}, found {quote(name)}"
    return f"{text}; {meant}" if (meant := suggestion(name, modes)) else text


def may_load(chosen: Mode) -> bool:
    """Whether a prebuilt library may be loaded."""
    return chosen in ("auto", "prebuilt", "error")


def may_build(chosen: Mode) -> bool:
    """Whether a library may be built at first use."""
    return chosen in ("auto", "jit", "error")


def warn(text: str) -> None:
    """Warn in one line, without a line of source; what is foreign in the text is escaped."""
    from torchwheel_runtime.text import escape  # noqa: PLC0415 - not for an import

    place = "<torchwheel>"  # of such a file Python prints no line
    warnings.warn_explicit(escape(text), RuntimeWarning, place, 1, __name__, _WARNED)


_WARNED: dict[Any, Any] = {}
"""What Python's filters know of the warnings that were shown."""


LoadStep = Literal["prebuilt", "jit cache", "jit build"]
Way = Literal["prebuilt", "jit cache", "jit build", "fallback", "waiting"]
"""What an operator runs on; "waiting": it is built at its first call on a GPU."""
WAY_TEXTS: Mapping[Way, str] = {
    "prebuilt": "prebuilt",
    "jit cache": "jit cache",
    "jit build": "jit build",
    "fallback": "plain PyTorch",
    "waiting": "to be built at its first call on a GPU",
}
"""The ways in the words of a report."""


def ways_text(ways: Mapping[str, Way]) -> str:
    """What operator families run on, e.g. "jit build (bias_act); plain PyTorch (gemm)".

    Without their names, if all run on the same.
    """
    names: dict[Way, list[str]] = {}
    for name, way in ways.items():
        names.setdefault(way, []).append(name)
    if len(names) == 1:
        return WAY_TEXTS[next(iter(names))]
    return "; ".join(f"{WAY_TEXTS[way]} ({', '.join(alike)})" for way, alike in names.items())


def cpu_torch() -> str:
    """What is said of a torch for CPUs, if this process has imported one."""
    torch = sys.modules.get("torch")
    if torch is None or torch.version.cuda or torch.version.hip:
        return ""
    return f"torch {torch.__version__} is for CPUs"


@dataclasses.dataclass(frozen=True)
class Refusal:
    """A step of the load order that failed, and why.

    Attributes:
        step: the step.
        reason: one line, with the fix.
        fault: whether it deserves a warning: a library that does not load does, one that was never
            installed does not.
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
        ops: its operators in torch, e.g. ("fusedops::bias_gelu", …).
        way: what it runs on.
        library: the native library's file, if it runs on one.
        refusals: the earlier steps that failed, in order.
    """

    operator: str
    ops: tuple[str, ...]
    way: Way
    library: Path | None = None
    refusals: tuple[Refusal, ...] = ()

    @property
    def faults(self) -> tuple[Refusal, ...]:
        """The earlier steps that failed and deserve a warning."""
        return tuple(refusal for refusal in self.refusals if refusal.fault)

    @property
    def text(self) -> str:
        """One line: what it runs on, the library, and the earlier steps that failed."""
        library = f", {self.library.name}" if self.library else ""
        refused = f" ({'; '.join(map(str, self.refusals))})" if self.refusals else ""
        return f"{WAY_TEXTS[self.way]}{library}{refused}"

    @property
    def reason(self) -> str:
        """One line: what it runs on, or why it falls back."""
        if self.library is not None:
            return f"{self.way}: {self.library.name}"
        return "; ".join(map(str, self.refusals)) or WAY_TEXTS[self.way]


@dataclasses.dataclass(frozen=True, repr=False)
class ExtensionStatus:
    """What an extension runs on.

    Attributes:
        package: e.g. "fusedops".
        mode: the mode in force (TORCHWHEEL_MODE).
        operators: each operator family.
        module: the extension module, if the prebuilt library is one.
        choices: of a universal wheel, after the first call: a line on the front end in use, and one
            for each GPU, which says why each kernel library was chosen or not.
        waiting_gpus: GPUs that the universal wheel has no code for: kernels are built at the first
            call there, beside those of other GPUs.
    """

    package: str
    mode: str
    operators: tuple[OperatorStatus, ...]
    module: ModuleType | None = None
    choices: tuple[str, ...] = ()
    waiting_gpus: tuple[int, ...] = ()

    def __repr__(self) -> str:
        """A table: what each operator family runs on, for a prompt and for a script's print."""
        torch = sys.modules.get("torch")
        no_gpu = cpu_torch()
        if torch and not no_gpu and not torch.cuda.device_count():
            no_gpu = "there is no GPU here"
        ways = self.summary(no_gpu)
        if no_gpu and not self.falls_back:
            ways += "; on a GPU:"
        width = max((len(one.operator) for one in self.operators), default=0)
        rows = [f"  {one.operator:<{width}}  {one.text}" for one in self.operators]
        return "\n".join([f"{self.package}: {ways}", *rows, *(f"  {one}" for one in self.choices)])

    def summary(self, no_gpu: str = "") -> str:
        """What the operators run on, in words. `no_gpu` says why they find no GPU, if so."""
        if no_gpu:
            return f"{WAY_TEXTS['fallback']}, as {no_gpu}"
        if self.falls_back and not self.failed and self.mode not in ("auto", "error"):
            return f"{WAY_TEXTS['fallback']}, as {MODE_VARIABLE}={self.mode} asks"
        return ways_text({one.operator: one.way for one in self.operators})

    @property
    def falls_back(self) -> bool:
        """Whether every operator runs on plain PyTorch, whatever GPU a call is on."""
        return all(operator.way == "fallback" for operator in self.operators)

    @property
    def failed(self) -> bool:
        """Whether an operator runs on plain PyTorch because of a fault."""
        return any(operator.way == "fallback" and operator.faults for operator in self.operators)

    @property
    def library(self) -> Path | None:
        """The prebuilt library in use."""
        return next(
            (operator.library for operator in self.operators if operator.way == "prebuilt"), None
        )

    @property
    def waits(self) -> bool:
        """Whether an operator is built at its first call on a GPU."""
        ways = (operator.way for operator in self.operators)
        return bool(self.waiting_gpus) or "waiting" in ways

    @property
    def native(self) -> bool:
        """Whether every operator runs on a native library."""
        return all(operator.library is not None for operator in self.operators)

    @property
    def reason(self) -> str:
        """One line on what the operators run on."""
        reasons = dict.fromkeys(operator.reason for operator in self.operators)
        return "; ".join(reasons)
