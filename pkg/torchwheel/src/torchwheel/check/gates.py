"""The gates over wheels: the table of them, one run, and `torchwheel check`."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from torchwheel import __version__
from torchwheel.check import named_gates
from torchwheel.check.archs import archs
from torchwheel.check.content import content
from torchwheel.check.facts import GateError, Limits, WheelFacts, fact, read_facts
from torchwheel.check.label import label, named_label
from torchwheel.check.libraries import platform_tag, runtime, torch_symbols
from torchwheel.check.metadata import metadata
from torchwheel.check.named_claims import NamedCase, case_of
from torchwheel.findings import CheckResult, finding_of_wheel, sarif_text, summary_text
from torchwheel.inspect.inspection import inspect_wheel
from torchwheel_runtime import files
from torchwheel_runtime.errors import TorchwheelError, UsageError
from torchwheel_runtime.os_errors import explain
from torchwheel_runtime.text import escape, shorten_line, table_rows
from torchwheel_runtime.validate.findings import Finding

MAX_SIZE_MIB = 64
_MOST_SAID = 3
_NOT_JUDGED = "not judged"


def record(facts: WheelFacts, _: Limits) -> str:
    """The archive is complete and safe, and every file has RECORD's hash, as read_wheel checks."""
    wheel = facts.wheel.read()
    return f"{len(wheel.members)} files, every hash as RECORD has it"


def size(facts: WheelFacts, limits: Limits) -> str:
    """The file is no larger than the matrix allows."""
    return _require_size(facts.wheel.read().size, limits.max_size_mib)


def _require_size(size_: int, most: float) -> str:
    mib = size_ / (1 << 20)
    if mib > most:
        raise GateError(f"{mib:.2f} MiB; at most {most:g} MiB expected")
    return f"{mib:.2f} MiB of {most:g} MiB"


@dataclasses.dataclass(frozen=True)
class Gate:
    """A gate in both its forms; None where it has but one.

    Attributes:
        by_claims: holds a wheel to its torchwheel.json. It returns a line about what holds, and has
            failed if it raises anything.
        by_name: holds anybody's wheel to what its name and metadata say. It yields findings, and
            has failed if one of them is an error.
    """

    by_claims: Callable[[WheelFacts, Limits], str] | None = None
    by_name: Callable[[NamedCase], Iterable[named_gates.Row]] | None = None


GATES: Mapping[str, Gate] = {
    "record": Gate(record, named_gates.record),
    "content": Gate(content, named_gates.content),
    "metadata": Gate(metadata, named_gates.metadata),
    "archs": Gate(archs),
    "label": Gate(label, named_label),
    "gpu-code": Gate(by_name=named_gates.gpu_code),
    "torch-symbols": Gate(torch_symbols, named_gates.torch_symbols),
    "python-abi": Gate(by_name=named_gates.python_abi),
    "runtime": Gate(runtime, named_gates.runtime),
    "run-paths": Gate(by_name=named_gates.run_paths),
    "platform-tag": Gate(platform_tag, named_gates.platform_tag),
    "size": Gate(size),
}
"""Every gate, in the order in which they are run; docs/gates.md has a section for each."""

OF_CLAIMS = {name: gate.by_claims for name, gate in GATES.items() if gate.by_claims}
OF_NAMES = {name: gate.by_name for name, gate in GATES.items() if gate.by_name}


Judged = tuple[tuple[CheckResult, ...], tuple[Finding, ...]]
"""The verdict of every gate, and all findings."""


def run_gates(wheel: Path, limits: Limits) -> tuple[CheckResult, ...]:
    """Judge a wheel by every gate."""
    return judge(read_facts(wheel), limits)


def judge(facts: WheelFacts, limits: Limits) -> tuple[CheckResult, ...]:
    """The verdict of every gate on facts already read."""
    if facts.wheel.fault is not None:
        return _unread_results(OF_CLAIMS, " ".join(facts.wheel.fault.split()))
    return tuple(
        _run_gate(name, functools.partial(gate, facts, limits))[0]
        for name, gate in OF_CLAIMS.items()
    )


def judge_named(wheel: Path, max_size_mib: float | None = None) -> Judged:
    """The verdict of every gate on anybody's wheel, and its findings.

    A wheel that cannot be read at all fails every gate: they fail closed.
    """
    try:
        case = case_of(inspect_wheel(wheel))
    except TorchwheelError as error:
        unread = _unread_results(OF_NAMES, shorten_line(str(error)))
        return unread, _failures(unread)
    return judge_case(case, max_size_mib)


def judge_case(case: NamedCase, max_size_mib: float | None = None) -> Judged:
    """The verdict of every gate on the facts of anybody's wheel, and its findings."""

    def sized() -> Iterable[Finding]:
        _require_size(case.facts.size, max_size_mib or 0)
        return ()

    gates: dict[str, Callable[[], str | Iterable[Finding]]] = {
        name: functools.partial(_findings, case, name) for name in OF_NAMES
    }
    if max_size_mib is not None:
        gates["size"] = sized
    judged = [_run_gate(name, gate) for name, gate in gates.items()]
    findings = tuple(finding for _, found in judged for finding in found)
    return tuple(result for result, _ in judged), findings


def findings_of(case: NamedCase) -> tuple[Finding, ...]:
    """The findings of all gates about anybody's wheel, package or library."""
    return tuple(finding for name in OF_NAMES for finding in _findings(case, name))


def _findings(case: NamedCase, name: str) -> Iterator[Finding]:
    return (finding_of_wheel(name, *row) for row in OF_NAMES[name](case))


def _run_gate(
    name: str, gate: Callable[[], str | Iterable[Finding]]
) -> tuple[CheckResult, tuple[Finding, ...]]:
    """Run a gate, which says what holds or yields findings. It fails closed."""

    def ask() -> str | tuple[Finding, ...]:
        said = gate()
        return said if isinstance(said, str) else tuple(said)

    asked = fact(ask, "the gate broke: ")
    if asked.value is None:
        failed = CheckResult(name, False, " ".join((asked.fault or "").split()))
        return failed, _failures([failed])
    if isinstance(asked.value, str):
        return CheckResult(name, True, asked.value), ()
    return _result(name, asked.value)


def _result(name: str, found: tuple[Finding, ...]) -> tuple[CheckResult, tuple[Finding, ...]]:
    errors = [finding for finding in found if finding.level == "error"]
    said = errors or found
    more = f"; and {len(said) - _MOST_SAID} more" if len(said) > _MOST_SAID else ""
    text = "; ".join(map(str, said[:_MOST_SAID])) + more
    return CheckResult(name, not errors, text or "holds"), found


def _failures(results: Iterable[CheckResult]) -> tuple[Finding, ...]:
    return tuple(finding_of_wheel(result.name, result.says) for result in results if not result.ok)


def _unread_results(gates: Iterable[str], fault: str) -> tuple[CheckResult, ...]:
    """The verdict on a wheel that cannot be read: no gate holds, and the first says why."""
    first, *others = gates
    return (
        CheckResult(first, False, fault),
        *(CheckResult(name, False, _NOT_JUDGED) for name in others),
    )


def faults(results: Sequence[CheckResult]) -> str:
    """The gates that do not hold, in one line."""
    return "; ".join(f"gate {result.name}: {result.says}" for result in results if not result.ok)


def all_passed(results: Sequence[CheckResult]) -> bool:
    """Whether every gate of the table was run and held."""
    return [result.name for result in results] == list(OF_CLAIMS) and all(r.ok for r in results)


def gates_text(results: Sequence[CheckResult]) -> str:
    """One line a gate."""
    cells = [("ok" if result.ok else "FAILED", result.name, result.says) for result in results]
    return "".join(f"{row}\n" for row in table_rows("<6 < <", cells))


def check_wheels(
    wheels: Sequence[Path],
    *,
    auto: bool = False,
    max_size_mib: float | None = None,
    sarif: Path | None = None,
    summary: Path | None = None,
) -> int:
    """Print the gates of each wheel and write the files asked for; 1 if a gate does not hold.

    Args:
        wheels: their files.
        auto: hold them to what they say by name and metadata, not to their torchwheel.json.
        max_size_mib: the limit of their size; None for 64 MiB, or with `auto` for none.
        sarif: the file for SARIF.
        summary: the file that a page of Markdown is appended to.
    """
    found: dict[str, tuple[Finding, ...]] = {}
    for wheel in wheels:
        if auto:
            results, findings = judge_named(wheel, max_size_mib)
        else:
            results = run_gates(wheel, Limits(max_size_mib=max_size_mib or MAX_SIZE_MIB))
            findings = _failures(results)
        found[str(wheel)] = findings
        print(f"{escape(wheel.name)}\n{gates_text(results)}", end="")
    gates: Mapping[str, Callable[..., object]] = OF_CLAIMS
    if auto:
        gates = {**OF_NAMES, **({} if max_size_mib is None else {"size": size})}
    sentences = {name: (gate.__doc__ or name).splitlines()[0] for name, gate in gates.items()}
    try:
        if sarif:
            files.write_text(sarif, sarif_text(found, sentences, __version__))
        if summary:
            with summary.open("a", encoding="utf-8") as file:
                file.write(summary_text(found, sentences))
    except OSError as error:
        raise UsageError(explain(error)) from error
    return int(any(f.level == "error" for findings in found.values() for f in findings))
