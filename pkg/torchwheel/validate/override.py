"""TORCHWHEEL_IGNORE: rules that are let pass, each with a line that says so."""

import os
import sys
from collections.abc import Iterable, Mapping

from torchwheel.errors import TorchwheelError, UsageError
from torchwheel.shown import nearest, quoted
from torchwheel.validate.finding import RULES, Finding

VARIABLE = "TORCHWHEEL_IGNORE"


def ignored(environ: Mapping[str, str] = os.environ) -> frozenset[str]:
    """The rules named; a name that is none is a UsageError, for a typing error protects nobody."""
    names = [name.strip() for name in environ.get(VARIABLE, "").split(",")]
    for name in filter(None, names):
        if name not in RULES:
            raise UsageError(f"{VARIABLE}: {quoted(name)} is no rule: {nearest(name, RULES)}")
    return frozenset(filter(None, names))


def let_pass(
    findings: Iterable[Finding], environ: Mapping[str, str] = os.environ
) -> tuple[Finding, ...]:
    """The findings that stand. What is let pass is a line on the error stream, every time."""
    names = ignored(environ)
    standing = []
    for finding in findings:
        if finding.rule in names:
            print(f"torchwheel: warning: {VARIABLE} lets pass: {finding}", file=sys.stderr)
        else:
            standing.append(finding)
    return tuple(standing)


def enforce(findings: Iterable[Finding], environ: Mapping[str, str] = os.environ) -> None:
    """Raise a TorchwheelError with what blocks and was not let pass, a line for each finding."""
    blocking = [finding for finding in let_pass(findings, environ) if finding.blocks]
    if blocking:
        rules = ",".join(dict.fromkeys(finding.rule for finding in blocking))
        lines = "\n".join(map(str, blocking))
        raise TorchwheelError(f"{lines} ({VARIABLE}={rules} goes on all the same)")
