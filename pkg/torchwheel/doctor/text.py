"""What `torchwheel doctor` prints: a table that fits 80 columns, and the verdict at its end."""

from torchwheel.doctor.machine_text import machine_text
from torchwheel.doctor.model import Report, Verdict
from torchwheel.doctor.package_text import package_text
from torchwheel.doctor.rows import row, unbroken
from torchwheel.table import WIDTH

_LINE = "-" * WIDTH


def report_text(report: Report) -> str:
    """The machine, each package, and at the end the verdict on each."""
    parts = [machine_text(report.machine, report.variables, report.cache)]
    parts += map(package_text, report.packages)
    parts += map(_verdict_text, report.verdicts)
    return f"\n{_LINE}\n".join(parts)


def _verdict_text(verdict: Verdict) -> str:
    """The last lines: what else was found, then the first cause and what mends it."""
    lines: list[str] = []
    for finding in verdict.findings[1:]:
        lines += row("also", finding.says)
    lines += row("fine" if verdict.ok else "wrong", verdict.says)
    if verdict.mend:
        lines += unbroken("to mend it", verdict.mend)
    return "\n".join(lines)
