"""Results of checks, and findings: what is not as it should be.

Rendered as text, JSON, SARIF 2.1.0 and Markdown.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote as quote_address

from torchwheel_runtime.text import escape, shorten_line
from torchwheel_runtime.validate.findings import Finding, Level


def finding_of_wheel(
    rule: str,
    found: str,
    level: Level = "error",
    where: str = "",
    expected: str = "",
    fix: str = "",
) -> Finding:
    """A finding of a wheel, whose texts are printable. A long one is cut in its middle.

    A hostile wheel may have thousands of tags, or names of thousands of characters.
    """
    # What is escaped is longer, so it is cut afterwards.
    found, where, expected, fix = (
        shorten_line(escape(text)) for text in (found, where, expected, fix)
    )
    return Finding(rule, found, level, where, expected, fix)


@dataclasses.dataclass(frozen=True)
class CheckResult:
    """The verdict of a gate over a wheel, or of a check of a signature."""

    name: str
    ok: bool
    says: str


def finding_json(finding: Finding) -> dict[str, str]:
    """A finding for programs."""
    return {
        "gate": finding.rule,
        "level": finding.level,
        "place": finding.where,
        "says": finding.says,
    }


_SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
PAGE = "docs/gates.md"
"""The page with a section for each gate, in torchwheel's repository."""

Results = Mapping[str, Sequence[Finding]]
"""The findings of each wheel, by its file name."""


def sarif_text(results: Results, gates: Mapping[str, str], version: str) -> str:
    """The findings of several wheels as one run.

    Args:
        results: the findings.
        gates: the name of each gate that was run, with one sentence about it.
        version: torchwheel's.
    """
    names = list(gates)
    rules = [
        {
            "id": name,
            "shortDescription": {"text": text},
            "help": {"text": f"Section {name} of {PAGE} in torchwheel's repository."},
        }
        for name, text in gates.items()
    ]
    driver = {"name": "torchwheel", "version": version, "rules": rules}
    found = [
        _sarif_result(wheel, finding, names)
        for wheel, findings in results.items()
        for finding in findings
    ]
    run = {"tool": {"driver": driver}, "results": found}
    content = {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(content, indent=1) + "\n"


def _sarif_result(wheel: str, finding: Finding, names: Sequence[str]) -> dict[str, Any]:
    location: dict[str, Any] = {
        "physicalLocation": {"artifactLocation": {"uri": quote_address(wheel)}}
    }
    if finding.where:
        location["logicalLocations"] = [{"fullyQualifiedName": finding.where, "kind": "member"}]
    return {
        "ruleId": finding.rule,
        "ruleIndex": names.index(finding.rule),
        "level": finding.level,
        "message": {"text": str(finding)},
        "locations": [location],
    }


def summary_text(results: Results, gates: Mapping[str, str]) -> str:
    """The findings as a page of Markdown, for the summary of a CI job."""
    lines = ["# Gates", ""]
    for wheel, findings in results.items():
        wrong = {finding.rule for finding in findings if finding.level == "error"}
        held = len(gates) - len(wrong)
        lines += [f"## {_cell(wheel)}", "", f"{held} of {len(gates)} gates hold.", ""]
        if findings:
            lines += ["| gate | | finding |", "|---|---|---|"]
            lines += [f"| {f.rule} | {f.level} | {_cell(str(f))} |" for f in findings]
            lines.append("")
    return "\n".join(lines)


def _cell(text: str) -> str:
    """A text of a hostile file as plain text of Markdown: nothing in it is a link or a tag."""
    plain = shorten_line(escape(text))
    return "".join(f"\\{c}" if c in "\\`*_{}[]<>()#+!|~@" else c for c in plain)
