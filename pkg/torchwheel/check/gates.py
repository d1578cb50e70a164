"""The gates in order, and one run of them over a wheel."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from torchwheel.check.archs import archs
from torchwheel.check.content import content
from torchwheel.check.facts import GateError, Limits, WheelFacts, read_facts
from torchwheel.check.libraries import platform_tag, runtime, torch_symbols
from torchwheel.check.metadata import metadata
from torchwheel.errors import TorchwheelError
from torchwheel.text import table_rows


def record(facts: WheelFacts, _: Limits) -> str:
    """The archive is complete and safe, and every file has RECORD's hash, as read_wheel checks."""
    wheel = facts.wheel.read()
    return f"{len(wheel.members)} files, every hash as RECORD has it"


def size(facts: WheelFacts, limits: Limits) -> str:
    """The file is no larger than the matrix allows."""
    mib = facts.wheel.read().size / (1 << 20)
    if mib > limits.max_size_mib:
        raise GateError(f"{mib:.2f} MiB; at most {limits.max_size_mib:g} MiB expected")
    return f"{mib:.2f} MiB of {limits.max_size_mib:g} MiB"


Gate = Callable[[WheelFacts, Limits], str]
"""Returns a line about what holds; the gate has failed if it raises anything."""

GATES: Mapping[str, Gate] = {
    "record": record,
    "content": content,
    "metadata": metadata,
    "archs": archs,
    "torch-symbols": torch_symbols,
    "runtime": runtime,
    "platform-tag": platform_tag,
    "size": size,
}


@dataclasses.dataclass(frozen=True)
class GateResult:
    """The verdict of one gate."""

    name: str
    ok: bool
    says: str


def run_gates(
    wheel: Path, limits: Limits, *, cuobjdump: Path | None = None
) -> tuple[GateResult, ...]:
    """Judge a wheel by every gate; `cuobjdump` is looked for if none is given."""
    return judge(read_facts(wheel, cuobjdump), limits)


def judge(
    facts: WheelFacts, limits: Limits, gates: Mapping[str, Gate] = GATES
) -> tuple[GateResult, ...]:
    """The verdict of every gate on facts already read."""
    if facts.wheel.fault is not None:
        return not_judged(gates, " ".join(facts.wheel.fault.split()))
    return tuple(_result(name, gate, facts, limits) for name, gate in gates.items())


def not_judged(gates: Iterable[str], fault: str) -> tuple[GateResult, ...]:
    """The verdict on a wheel that cannot be read: no gate holds, and the first says why."""
    first, *others = gates
    return (
        GateResult(first, False, fault),
        *(GateResult(name, False, "not judged") for name in others),
    )


def faults(results: Sequence[GateResult]) -> str:
    """The gates that do not hold, in one line."""
    return "; ".join(f"gate {result.name}: {result.says}" for result in results if not result.ok)


def all_passed(results: Sequence[GateResult]) -> bool:
    """Whether every gate of the table was run and held."""
    return [result.name for result in results] == list(GATES) and all(r.ok for r in results)


def gates_text(results: Sequence[GateResult]) -> str:
    """One line a gate."""
    cells = [("ok" if result.ok else "FAILED", result.name, result.says) for result in results]
    return "".join(f"{row}\n" for row in table_rows("<6 < <", cells))


def _result(name: str, gate: Gate, facts: WheelFacts, limits: Limits) -> GateResult:
    try:
        return GateResult(name, True, gate(facts, limits))
    except TorchwheelError as error:
        return GateResult(name, False, " ".join(str(error).split()))
    # Fail closed: a gate that breaks has not held.
    except Exception as error:
        text = f"the gate broke: {type(error).__name__}: {error}"
        return GateResult(name, False, " ".join(text.split()))
