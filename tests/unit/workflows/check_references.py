"""Checks of expressions: every output, input and key of a matrix exists, no secret is read."""

import contextlib
import functools
import io
import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from check_runs import inputs
from workflow_files import LOCAL, ROOT, Files, jobs, local, needs, references

from torchwheel.cli import main

_OF_ACTIONS = {
    "actions/deploy-pages": {"page_url"},
    "actions/upload-artifact": {"artifact-id"},
    "actions/attest-build-provenance": {"bundle-path"},
}
_OF_SESSIONS = {"matrix": {"matrix", "kernels"}, "assemble": {"sums"}}
_WITH_TOKEN = {"contents", "actions"}
"""Permissions that a job with a token may have: to handle releases, and to start a workflow."""


@functools.cache
def github_output() -> dict[str, Any]:
    """The outputs of `matrix --github --output` for the real matrix, by name."""
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        file = Path(folder) / "output"
        call = ["matrix", "--matrix", str(ROOT / "matrix.yaml"), "--github", "--output", str(file)]
        assert main([*call, "release"]) == 0
        pairs = (line.split("=", 1) for line in file.read_text().splitlines())
        return {name: json.loads(value) for name, value in pairs}


def references_exist(files: Files) -> Iterator[str]:
    """The outputs, inputs and matrix keys that expressions name exist."""
    for path, document in files.workflows.items():
        for name, job in jobs(document).items():
            for ref in sorted(references({k: v for k, v in job.items() if k != "steps"})):
                yield from _at(path, name, ref, _job_fault(files, path, job, ref, len(_steps(job))))
            for number, step in enumerate(_steps(job)):
                for ref in sorted(references(step)):
                    yield from _at(path, name, ref, _job_fault(files, path, job, ref, number))
        outer = {key: value for key, value in document.items() if key != "jobs"}
        for ref in sorted(references(outer)):
            yield from _at(path, "on", ref, _outer_fault(files, path, ref))
    for path, document in files.actions.items():
        for ref in sorted(references(document)):
            if ref.partition(".")[2] not in inputs(document):
                yield from _at(path, "runs", ref, "no such input")


def no_secrets(files: Files) -> Iterator[str]:
    """No job reads a secret; a job with a token may do nothing but handle releases."""
    for path, document in files.workflows.items():
        for name, job in jobs(document).items():
            found = references(job) | ({"secrets"} if "secrets" in job else set())
            for ref in sorted(found):
                if ref.startswith("secrets"):
                    yield f"{path}: {name}: reads {ref}"
                if ref == "github.token" and not set(job.get("permissions", "?")) <= _WITH_TOKEN:
                    yield f"{path}: {name}: has a token and other permissions"


def _at(path: str, place: str, ref: str, fault: str | None) -> Iterator[str]:
    if fault:
        yield f"{path}: {place}: {ref}: {fault}"


def _steps(job: Mapping[str, Any]) -> list[Any]:
    return job.get("steps", [])


def _outer_fault(files: Files, path: str, ref: str) -> str | None:
    kind, *rest = ref.split(".")
    if kind == "jobs":
        return _output_fault(files, path, rest[0], rest[2])
    return _input_fault(files, path, ref) if kind == "inputs" else None


def _job_fault(
    files: Files, path: str, job: Mapping[str, Any], ref: str, before: int
) -> str | None:
    """The fault of a reference in a job, if any; only the first `before` steps have run."""
    kind, *rest = ref.split(".")
    if kind == "inputs":
        return _input_fault(files, path, ref)
    if kind == "needs":
        if rest[0] not in needs(job):
            return "not in needs"
        return None if rest[1] != "outputs" else _output_fault(files, path, rest[0], rest[2])
    if kind == "steps":
        return _step_fault(_steps(job)[:before], rest)
    if kind == "matrix" and rest[0] not in _keys(job):
        return "no such key in the matrix"
    return None


def _input_fault(files: Files, path: str, ref: str) -> str | None:
    triggers = files.workflows[path]["on"]
    for trigger in ("workflow_call", "workflow_dispatch"):
        if trigger in triggers:
            declared = (triggers[trigger] or {}).get("inputs", {})
            if ref.partition(".")[2] not in declared:
                return f"no such input of {trigger}"
    return None if {"workflow_call", "workflow_dispatch"} & set(triggers) else "no inputs at all"


def _output_fault(files: Files, path: str, job_name: str, output: str) -> str | None:
    job = jobs(files.workflows[path]).get(job_name)
    if job is None:
        return "no such job"
    declared: Mapping[str, Any] = job.get("outputs", {})
    if job.get("uses", "").startswith(LOCAL):
        called = files.workflows[local(job["uses"])]["on"]["workflow_call"]
        declared = called.get("outputs", {})
    return None if output in declared else "no such output"


def _step_fault(earlier: list[Any], rest: list[str]) -> str | None:
    name, _, output = rest
    for step in earlier:
        if step.get("id") == name:
            if "run" in step:
                written = _OF_SESSIONS.get(step["run"].split()[2], set())
                if '--output "$GITHUB_OUTPUT"' not in step["run"]:
                    written = set()
                return None if output in written else "the step does not write it"
            known = _OF_ACTIONS.get(step["uses"].partition("@")[0], set())
            return None if output in known else "not a known output of the action"
    return "no such step before"


def _keys(job: Mapping[str, Any]) -> set[str]:
    matrix = job.get("strategy", {}).get("matrix", {})
    if isinstance(matrix, str):  # made by `torchwheel matrix`
        output = "kernels" if "outputs.kernels" in matrix else "matrix"
        rows = github_output()[output]["include"]
        return set.intersection(*(set(row) for row in rows))
    return set(matrix)
