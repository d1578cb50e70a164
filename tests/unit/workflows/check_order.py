"""Checks of the order: artifacts come before they are wanted, nothing unproven is published."""

import dataclasses
import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Any

from workflow_files import EXPRESSION, LOCAL, Files, jobs, local, needs

UPLOAD, DOWNLOAD = "actions/upload-artifact", "actions/download-artifact"
RELEASE = ".github/workflows/release.yml"
CHAIN = ("wheels", "smoke", "assemble")
OF_A_WHEEL = (
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
    """All jobs of a run of one workflow."""
    every = jobs(files.workflows.get(path, {}))
    for name, job in every.items():
        earlier = {other for one in _all_needs(every, name) for other in _inside(files, every, one)}
        before = frozenset(f"{prefix}{one}" for one in earlier) | outer
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
    found: set[str] = set()
    wanted = [name]
    while wanted:
        for one in needs(every[wanted.pop()]):
            if one not in found and one in every:
                found.add(one)
                wanted.append(one)
    return found


def artifacts_come_first(files: Files) -> Iterator[str]:
    """What a job downloads was uploaded, once, by a job that ran before it."""
    for path, document in files.workflows.items():
        if set(document["on"]) == {"workflow_call"}:
            continue  # is part of other runs
        found = list(nodes(files, path))
        uploads: dict[str, str] = {}
        for node in found:
            for name in _artifacts(node, UPLOAD):
                if name in uploads:
                    yield f"{path}: {node.name}: {name} is uploaded by {uploads[name]} too"
                uploads[name] = node.name
        for node in found:
            for name in _artifacts(node, DOWNLOAD):
                if uploads.get(name) not in node.before:
                    yield f"{path}: {node.name}: no job before it uploads {name}"


def wheels_are_kept_whole(files: Files) -> Iterator[str]:
    """The artifact of a wheel has its bundled packages and its records."""
    for path, document in files.workflows.items():
        for name, job in jobs(document).items():
            for given in _given(job, UPLOAD):
                if str(given["name"]).startswith("wheel-"):
                    kept = EXPRESSION.sub("*", given["path"]).split()
                    left_out = [one for one in OF_A_WHEEL if one not in kept]
                    yield from (f"{path}: {name}: keeps no {one}" for one in left_out)


def release_is_proven(files: Files) -> Iterator[str]:
    """Whatever may write needs assemble, which needs smoke, which needs wheels."""
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
    """Nothing may write but jobs of the release, each of which says what."""
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
    """Names or patterns, with `*` where a job's own variant stands."""
    given = _given(node.job, action)
    return [EXPRESSION.sub("*", str(one.get("name", one.get("pattern")))) for one in given]


def _given(job: Mapping[str, Any], action: str) -> list[Mapping[str, Any]]:
    return [
        step.get("with", {})
        for step in job.get("steps", [])
        if re.match(re.escape(action) + "@", step.get("uses", ""))
    ]


def _writes(job: Mapping[str, Any]) -> bool:
    permissions = job.get("permissions", {})
    return permissions == "write-all" or "write" in dict(permissions or {}).values()
