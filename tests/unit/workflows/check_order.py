"""Checks of the order: artifacts exist before they are read, only proven wheels are published."""

import dataclasses
import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Any

from workflow_files import EXPRESSION, LOCAL, Files, jobs, local, needs

UPLOAD, DOWNLOAD = "actions/upload-artifact", "actions/download-artifact"
RELEASE = ".github/workflows/release.yml"
CHAIN = ("wheels", "smoke", "assemble")
WHEEL_ARTIFACT = (
    "dist/*.whl",
    "dist/bundled/*.whl",
    "dist/.torchwheel/*.json",
    "dist/smoke/*.json",
)
"""The files of a wheel's artifact that assemble, and smoke on another machine, read."""


@dataclasses.dataclass(frozen=True)
class Node:
    """A job of a run, those of called workflows included, and the jobs that run before it."""

    name: str
    job: Mapping[str, Any]
    before: frozenset[str]


def nodes(
    files: Files, path: str, prefix: str = "", outer: frozenset[str] = frozenset()
) -> Iterator[Node]:
    """All jobs of one workflow's run, with those of the workflows that it calls."""
    every = jobs(files.workflows.get(path, {}))
    for name, job in every.items():
        earlier = {
            inner for need in _all_needs(every, name) for inner in _inside(files, every, need)
        }
        before = frozenset(f"{prefix}{inner}" for inner in earlier) | outer
        uses = job.get("uses", "")
        if uses.startswith(LOCAL):
            yield from nodes(files, local(uses), f"{prefix}{name}.", before)
        else:
            yield Node(f"{prefix}{name}", job, before)


def _inside(files: Files, every: Mapping[str, Any], name: str) -> Iterator[str]:
    uses = every[name].get("uses", "")
    if uses.startswith(LOCAL):
        yield from (node.name for node in nodes(files, local(uses), f"{name}."))
    else:
        yield name


def _all_needs(every: Mapping[str, Any], name: str) -> set[str]:
    names: set[str] = set()
    pending = [name]
    while pending:
        for need in needs(every[pending.pop()]):
            if need not in names and need in every:
                names.add(need)
                pending.append(need)
    return names


def artifacts_come_first(files: Files) -> Iterator[str]:
    """Each artifact that a job downloads was uploaded once, by a job that ran before it."""
    for path, document in files.workflows.items():
        if set(document["on"]) == {"workflow_call"}:
            continue  # other workflows call it
        run = list(nodes(files, path))
        uploads: dict[str, str] = {}
        for node in run:
            for name in _artifacts(node, UPLOAD):
                if name in uploads:
                    yield f"{path}: {node.name}: {name} is uploaded by {uploads[name]} too"
                uploads[name] = node.name
        for node in run:
            for name in _artifacts(node, DOWNLOAD):
                if uploads.get(name) not in node.before:
                    yield f"{path}: {node.name}: no job before it uploads {name}"


def wheel_artifacts_are_complete(files: Files) -> Iterator[str]:
    """The artifact of a wheel has its bundled packages and its records."""
    for path, document in files.workflows.items():
        for name, job in jobs(document).items():
            for inputs in _inputs(job, UPLOAD):
                if str(inputs["name"]).startswith("wheel-"):
                    uploaded = EXPRESSION.sub("*", inputs["path"]).split()
                    missing = [pattern for pattern in WHEEL_ARTIFACT if pattern not in uploaded]
                    yield from (f"{path}: {name}: keeps no {pattern}" for pattern in missing)


def release_is_proven(files: Files) -> Iterator[str]:
    """Each job that may write needs assemble, assemble needs smoke, smoke needs wheels."""
    every = jobs(files.workflows[RELEASE])
    for first, then in itertools.pairwise(CHAIN):
        if then in every and first not in _all_needs(every, then):
            yield f"{RELEASE}: {then} does not need {first}"
    for name in CHAIN:
        if not any(_runs(node, name) for node in nodes(files, RELEASE)):
            yield f"{RELEASE}: {name} does not run nox -s {name}"
    assembled = {name for n in nodes(files, RELEASE) if n.name == CHAIN[-1] for name in _up(n)}
    for node in nodes(files, RELEASE):
        if not _writes(node.job):
            continue
        if CHAIN[-1] not in node.before:
            yield f"{RELEASE}: {node.name} may write and does not need {CHAIN[-1]}"
        for name in set(_artifacts(node, DOWNLOAD)) - assembled:
            yield f"{RELEASE}: {node.name} publishes {name}, which assemble did not write"


def least_permissions(files: Files) -> Iterator[str]:
    """Only jobs of the release may write, each with its own permissions."""
    for path, document in files.workflows.items():
        if document.get("permissions") not in ({}, {"contents": "read"}):
            yield f"{path}: permissions of the workflow: {document.get('permissions')}"
        for name, job in jobs(document).items():
            if _writes(job) and path != RELEASE:
                yield f"{path}: {name} may write"


def _runs(node: Node, session: str) -> bool:
    """Whether a job of that name, or of a workflow called by it, runs the session."""
    runs = [step.get("run", "") for step in node.job.get("steps", [])]
    own = node.name == session or node.name.startswith(f"{session}.")
    return own and any(run.startswith(f"nox -s {session} -- ") for run in runs)


def _up(node: Node) -> list[str]:
    return _artifacts(node, UPLOAD)


def _artifacts(node: Node, action: str) -> list[str]:
    """Names or patterns of artifacts, with `*` in place of expressions."""
    return [
        EXPRESSION.sub("*", str(inputs.get("name", inputs.get("pattern"))))
        for inputs in _inputs(node.job, action)
    ]


def _inputs(job: Mapping[str, Any], action: str) -> list[Mapping[str, Any]]:
    return [
        step.get("with", {})
        for step in job.get("steps", [])
        if re.match(re.escape(action) + "@", step.get("uses", ""))
    ]


def _writes(job: Mapping[str, Any]) -> bool:
    permissions = job.get("permissions", {})
    return permissions == "write-all" or "write" in dict(permissions or {}).values()
