"""`torchwheel check`: the gates over several wheels, printed, as SARIF and as a CI summary."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from torchwheel import __version__, files
from torchwheel.check.facts import Limits
from torchwheel.check.gates import GATES, GateResult, gates_text, not_judged, run_gates
from torchwheel.check.named_gates import NAMED_GATES, GateFinding, case_of
from torchwheel.check.sarif import sarif_text, summary_text
from torchwheel.errors import TorchwheelError, UsageError
from torchwheel.inspect.inspection import inspect_wheel
from torchwheel.os_errors import explain
from torchwheel.text import escape, shorten_line

MAX_SIZE_MIB = 64
_MOST_SAID = 3


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
    found: dict[str, tuple[GateFinding, ...]] = {}
    for wheel in wheels:
        results, findings = (
            judge_named(wheel, max_size_mib) if auto else _judge_claimed(wheel, max_size_mib)
        )
        found[str(wheel)] = findings
        print(f"{escape(wheel.name)}\n{gates_text(results)}", end="")
    gates = _sentences(auto, max_size_mib)
    try:
        if sarif:
            files.write_text(sarif, sarif_text(found, gates, __version__))
        if summary:
            with summary.open("a", encoding="utf-8") as file:
                file.write(summary_text(found, gates))
    except OSError as error:
        raise UsageError(explain(error)) from error
    return int(any(f.level == "error" for findings in found.values() for f in findings))


def _sentences(auto: bool, max_size_mib: float | None) -> Mapping[str, str]:
    """The gates that are run, each with the first line of its docstring."""
    sized = {} if max_size_mib is None else {"size": GATES["size"]}
    gates: Mapping[str, Callable[..., object]] = {**NAMED_GATES, **sized} if auto else GATES
    return {name: (gate.__doc__ or name).splitlines()[0] for name, gate in gates.items()}


def _judge_claimed(
    wheel: Path, max_size_mib: float | None
) -> tuple[tuple[GateResult, ...], tuple[GateFinding, ...]]:
    results = run_gates(wheel, Limits(max_size_mib=max_size_mib or MAX_SIZE_MIB))
    return results, tuple(GateFinding(r.name, r.says) for r in results if not r.ok)


def judge_named(
    wheel: Path, max_size_mib: float | None = None
) -> tuple[tuple[GateResult, ...], tuple[GateFinding, ...]]:
    """The verdict of every gate on anybody's wheel, and its findings.

    A wheel that cannot be read at all fails every gate: they fail closed.
    """
    try:
        case = case_of(inspect_wheel(wheel))
    except TorchwheelError as error:
        unread = not_judged(NAMED_GATES, shorten_line(str(error)))
        return unread, tuple(GateFinding(result.name, result.says) for result in unread)
    results: list[GateResult] = []
    everything: list[GateFinding] = []
    for name, gate in NAMED_GATES.items():
        try:
            found = list(gate(case))
        # Fail closed: a gate that breaks has not held.
        except Exception as error:
            text = " ".join(f"the gate broke: {type(error).__name__}: {error}".split())
            found = [GateFinding(name, text)]
        everything += found
        results.append(_result(name, found))
    if max_size_mib is not None:
        mib = case.facts.size / (1 << 20)
        too_large = GateFinding("size", f"{mib:.2f} MiB; at most {max_size_mib:g} MiB expected")
        found = [too_large] if mib > max_size_mib else []
        everything += found
        results.append(_result("size", found))
    return tuple(results), tuple(everything)


def _result(name: str, found: Sequence[GateFinding]) -> GateResult:
    errors = [finding for finding in found if finding.level == "error"]
    said = errors or found
    more = f"; and {len(said) - _MOST_SAID} more" if len(said) > _MOST_SAID else ""
    text = "; ".join(map(str, said[:_MOST_SAID])) + more
    return GateResult(name, not errors, text or "holds")
