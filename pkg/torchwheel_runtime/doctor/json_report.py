"""The output of `torchwheel doctor --json`; docs/doctor.md lists its keys."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from torchwheel_runtime.arch.model import CudaArch, RocmArch
from torchwheel_runtime.doctor.caches import CorruptLibrary
from torchwheel_runtime.doctor.case import Package, Report, Verdict
from torchwheel_runtime.doctor.installation_rules import irregular_text
from torchwheel_runtime.doctor.native import NativeLibrary
from torchwheel_runtime.machine.facts import Absent

SCHEMA = 1


def report_json(report: Report) -> str:
    """Byte-stable JSON without a final newline."""
    document = {
        "schema": SCHEMA,
        "ok": report.ok,
        "machine": _plain(report.machine),
        "variables": dict(report.variables),
        "cache": _plain(report.cache),
        "packages": [_package(package) for package in report.packages],
        "verdicts": [_verdict(verdict) for verdict in report.verdicts],
    }
    return json.dumps(document, indent=1)


def _verdict(verdict: Verdict) -> dict[str, Any]:
    findings = [{"name": one.rule, "says": one.says, "fix": one.fix} for one in verdict.findings]
    return {"ok": verdict.ok, "findings": findings, "says": verdict.says, "fix": verdict.fix}


def _package(package: Package) -> dict[str, Any]:
    info = package.info
    return {
        "name": package.name,
        "module": package.module,
        "root": _plain(package.root),
        "version": info.version if info else None,
        "claims": _plain(info.claims) if info else None,
        "requires_torch": info.torch if info else None,
        "problems": [*info.problems, *map(irregular_text, info.irregular)] if info else [],
        "import": {
            "how": package.imported.how,
            "words": list(package.imported.words),
            "where": package.imported.where,
            "file": _plain(package.imported.file),
        },
        "mode": package.status.mode if package.status else None,
        "choices": list(package.status.choices) if package.status else [],
        "waiting_gpus": list(package.status.waiting_gpus) if package.status else [],
        "operators": [_plain(operator) for operator in package.status.operators]
        if package.status
        else [],
        "libraries": [_native(native) for native in package.natives],
    }


def _native(native: NativeLibrary) -> dict[str, Any]:
    links = native.links
    return {
        "name": native.name,
        "path": _plain(native.path),
        "loaded": native.loaded,
        "problem": native.problem,
        "machine": native.machine or None,
        "backend": native.backend,
        "archs": [str(arch) for arch in native.archs],
        "ptx": [str(arch) for arch in native.ptx],
        "gpu_code_problem": native.code_problem,
        "glibc": native.glibc,
        "runtime": native.runtime,
        "needed": list(native.needed),
        "found": _plain(links.found) if links else {},
        "absent": _plain(links.absent) if links else {},
        "torch_symbols": len(links.torch_symbols) if links else None,
        "undefined": _plain(links.undefined) if links else [],
        "too_old": _plain(links.outdated) if links else [],
    }


_AS_TEXT = (CudaArch, RocmArch, Absent, CorruptLibrary)


def _plain(value: Any) -> Any:  # noqa: ANN401 - any value of the model
    """A value as JSON has it: a dataclass by its fields, an arch, a path or a reason as text."""
    if dataclasses.is_dataclass(value) and not isinstance(value, _AS_TEXT):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
