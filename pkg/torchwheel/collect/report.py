"""What a collection holds, as JSON for programs and as a table of 80 columns for people."""

import dataclasses
import json
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from torchwheel.collect.cases import Case
from torchwheel.collect.rules import on_gpu
from torchwheel.pipeline.report import size_text
from torchwheel.smoke.record import Record

REPORT = "collected.json"
SCHEMA = 1
_WIDTH = 80


def document(project: str, cases: Sequence[Case], groups: Mapping[str, Sequence[str]]) -> str:
    """Byte-stable JSON: each wheel with its hash, its gates and its smoke runs."""
    wheels = [_wheel(case, groups[case.variant.id]) for case in cases]
    return json.dumps({"schema": SCHEMA, "project": project, "wheels": wheels}, indent=1) + "\n"


def _wheel(case: Case, groups: Sequence[str]) -> dict[str, Any]:
    candidate = case.candidate
    return {
        "variant": case.variant.id,
        "file": candidate.path.name,
        "version": str(candidate.wheel.version),
        "sha256": candidate.sha256,
        "size": candidate.wheel.size,
        "claims": dataclasses.asdict(candidate.claims),
        "groups": groups,
        "gates": {result.name: result.says for result in candidate.gates},
        "on_gpu": any(on_gpu(case, record) for record in case.smokes),
        "smoke": [_run(record) for record in case.smokes],
    }


def _run(record: Record) -> dict[str, Any]:
    outcomes = [test.outcome for test in record.tests]
    return {
        "date": record.date,
        "verdict": record.verdict,
        "machine": dataclasses.asdict(record.machine),
        "tests": {name: outcomes.count(name) for name in ("passed", "failed", "skipped")},
    }


def table(cases: Sequence[Case]) -> str:
    """One row a wheel: its size, its gates, and the GPUs it ran on."""
    width = max([7, *(len(case.variant.id) for case in cases)])
    lines = [f"{'variant':<{width}}  {'size':>8}  {'gates':>5}  smoke", "-" * _WIDTH]
    for case in cases:
        row = (
            f"{case.variant.id:<{width}}  {size_text(case.candidate.wheel.size):>8}  "
            f"{len(case.candidate.gates):>2} ok  "
        )
        lines.append(row + textwrap.shorten(_where(case), _WIDTH - len(row), placeholder="…"))
    return "\n".join(lines)


def _where(case: Case) -> str:
    gpus = [r.machine.gpu.name for r in case.smokes if on_gpu(case, r) and r.machine.gpu]
    return ", ".join(dict.fromkeys(gpus)) or "not run on a GPU"
