"""The findings of rules, and TORCHWHEEL_IGNORE, which overrides rules."""

import dataclasses
import os
import sys
from collections.abc import Iterable, Mapping
from typing import Literal

from torchwheel_runtime.errors import TorchwheelError, UsageError
from torchwheel_runtime.text import escape, nearest, quote

RULES: Mapping[str, str] = {
    "torch": "torch is there, and of the range that the library is for",
    "backend": "torch is built for the GPUs that the library has kernels for",
    "toolkit": "there is a toolkit, and its parts are of one release",
    "toolkit-torch": "the toolkit and torch are of CUDA or ROCm releases that go together",
    "two-toolkits": "the toolkits that variables and the PATH lead to are of one release",
    "host-compiler": "there is a C++ compiler, and the toolkit works with it",
    "driver": "the driver serves the toolkit's release",
    "ptx": "the driver can compile the PTX that a GPU depends on",
    "archs": "there is code for every GPU",
    "glibc": "the C library is at least the one that the wheel's tag names",
}
"""The rules of loads and builds, which TORCHWHEEL_IGNORE takes, and what each asks for."""

Level = Literal["error", "warning"]


@dataclasses.dataclass(frozen=True)
class Finding:
    """A rule that does not hold, or a fact that may surprise a user.

    Attributes:
        rule: the name of the rule, e.g. "glibc". TORCHWHEEL_IGNORE takes those of RULES; the doctor
            and the gates of wheels have their own.
        found: the fact. Without `expected` it is a sentence without a full stop.
        level: with a warning, a library still builds and loads but is of less use, and a wheel may
            still be released.
        where: the place, e.g. a file in a wheel; empty for the whole.
        expected: what the rule asks for, and why.
        fix: what to do, with a command if there is one.
        of_torch: of a library's fault: whether it comes of the installed torch, so that another
            one, or another wheel, clears it.
    """

    rule: str
    found: str
    level: Level = "error"
    where: str = ""
    expected: str = ""
    fix: str = ""
    of_torch: bool = False

    @property
    def blocks(self) -> bool:
        """Whether it is an error."""
        return self.level == "error"

    @property
    def fact(self) -> str:
        """What was expected and found."""
        return f"expected {self.expected}; found {self.found}" if self.expected else self.found

    @property
    def says(self) -> str:
        """What was expected and found, and the fix."""
        return f"{self.fact}; {self.fix}" if self.fix else self.fact

    @property
    def line(self) -> str:
        """The name of its rule, if it is one of a rule, and what it says."""
        return f"{self.rule}: {self.says}" if self.rule else self.says

    def __str__(self) -> str:
        return f"{self.where}: {self.says}" if self.where else self.says


VARIABLE = "TORCHWHEEL_IGNORE"


def ignored_rules(environ: Mapping[str, str] = os.environ) -> frozenset[str]:
    """The rules that the variable names; a misspelt name is a UsageError, as it has no effect."""
    names = [name.strip() for name in environ.get(VARIABLE, "").split(",")]
    for name in filter(None, names):
        if name not in RULES:
            raise UsageError(f"{VARIABLE}: {quote(name)} is no rule: {nearest(name, RULES)}")
    return frozenset(filter(None, names))


def drop_ignored(
    findings: Iterable[Finding], environ: Mapping[str, str] = os.environ
) -> tuple[Finding, ...]:
    """The findings of rules that are not ignored; an ignored finding is a line on stderr."""
    names = ignored_rules(environ)
    remaining = []
    for finding in findings:
        if finding.rule in names:
            text = escape(f"warning: {VARIABLE} lets pass: {finding.line}")
            print(f"torchwheel: {text}", file=sys.stderr)
        else:
            remaining.append(finding)
    return tuple(remaining)


def enforce(findings: Iterable[Finding], environ: Mapping[str, str] = os.environ) -> None:
    """Raise a TorchwheelError with a line for each blocking finding that is not ignored."""
    blocking = [finding for finding in drop_ignored(findings, environ) if finding.blocks]
    if blocking:
        rules = ",".join(dict.fromkeys(finding.rule for finding in blocking))
        *others, last = (finding.line for finding in blocking)
        raise TorchwheelError(*others, f"{last} ({VARIABLE}={rules} goes on all the same)")
