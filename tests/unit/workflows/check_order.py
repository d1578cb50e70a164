"""Checks of the order: what is read exists, what is published is proven, jobs can run again."""

import dataclasses
import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Any

from workflow_files import EXPRESSION, LOCAL, Files, jobs, local, needs

UPLOAD, DOWNLOAD = "actions/upload-artifact", "actions/download-artifact"
RELEASE = ".github/workflows/release.yml"
INDEX = ".github/workflows/index.yml"
PROJECT = ".github/workflows/project.yml"
ATTEST = "actions/attest-build-provenance"
PYPI = "pypa/gh-action-pypi-publish"
PACK, DEPLOY = "actions/upload-pages-artifact", "actions/deploy-pages"
CHAIN = ("wheels", "smoke", "assemble", "attest", "assets", "index", "pypi", "published")
"""Each needs the one before it. The first three prove, the others publish."""
SESSIONS = ("wheels", "smoke", "assemble", "assets", "dispatch", "published")
BY_ID = re.compile(r"\$\{\{ needs\.(\w+)\.outputs\.artifact \}\}")
"""The number of an artifact, as the job that uploaded it hands it on."""
SIGNING = {"id-token", "attestations"}
ONLY_TAGS = "github.event_name == 'push'"
WHEEL_ARTIFACT = (
    "dist/*.whl",
    "dist/bundled/*.whl",
    "dist/.torchwheel/*.json",
    "dist/smoke/*.json",
    "dist/evidence/*.sigstore.json",
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
                if name == "*":
                    continue  # named by the matrix, as is what reads it
                if name in uploads:
                    yield f"{path}: {node.name}: {name} is uploaded by {uploads[name]} too"
                uploads[name] = node.name
        for node in run:
            for name in set(_artifacts(node, DOWNLOAD)) - {"*"}:
                if not name.startswith("of ") and uploads.get(name) not in node.before:
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
    """The jobs of a release need each other in order, and only what `assemble` wrote goes out."""
    every = jobs(files.workflows[RELEASE])
    for first, then in itertools.pairwise(CHAIN):
        if then in every and first not in _all_needs(every, then):
            yield f"{RELEASE}: {then} does not need {first}"
    if "ci" not in _all_needs(every, "assemble"):
        yield f"{RELEASE}: assemble does not need ci"
    ran = {name for node in nodes(files, RELEASE) for name in _sessions(node)}
    yield from (f"{RELEASE}: no job runs nox -s {name}" for name in SESSIONS if name not in ran)
    for node in nodes(files, RELEASE):
        if _publishes(node.job) and "assemble" not in node.before:
            yield f"{RELEASE}: {node.name} may write and does not need assemble"


def release_is_handed_over(files: Files) -> Iterator[str]:
    """What follows `assemble` takes artifacts by number, and verifies them before they are used."""
    for node in nodes(files, RELEASE):
        taken = set(_artifacts(node, DOWNLOAD))
        if not taken or not (_publishes(node.job) or "assemble" in node.before):
            continue
        for name in sorted(taken - {"of assemble", "of attest"}):
            yield f"{RELEASE}: {node.name} takes {name}, which no job handed on by its number"
        steps = node.job["steps"]
        runs = [step for step in steps if '--sums "$SUMS"' in step.get("run", "")]
        if {step["env"]["SUMS"] for step in runs} != {"${{ needs.assemble.outputs.sums }}"}:
            yield f"{RELEASE}: {node.name} does not compare the release with what was assembled"
        elif steps.index(runs[0]) > steps.index(_first_use(steps)):
            yield f"{RELEASE}: {node.name} compares the release after it has used it"
        who = '--attestation attestation/* --commit "$COMMIT" --repository "$REPOSITORY"'
        if node.name != "attest" and not any(who in step["run"] for step in runs):
            yield f"{RELEASE}: {node.name} does not verify the attestation"


def _first_use(steps: list[Any]) -> Any:
    """The first step that signs or publishes, or the last one."""
    uses = (step for step in steps if step.get("uses", "").startswith((ATTEST, PYPI)))
    return next(uses, steps[-1])


def dry_run_publishes_nothing(files: Files) -> Iterator[str]:
    """A release has a dry run. What it leaves out is what follows a job for tags alone."""
    document = files.workflows[RELEASE]
    for trigger in ("workflow_dispatch", "pull_request"):
        if trigger not in document["on"]:
            yield f"{RELEASE}: no dry run by {trigger}"
    every = jobs(document)
    runs = " ".join(step.get("run", "") for step in every["assemble"]["steps"])
    if not re.search(r"nox -s assemble .*nox -s index -- build \S+ release\b", runs):
        yield f"{RELEASE}: assemble does not build the index with the release"
    for name, job in every.items():
        conditions = {every[other].get("if") for other in {name, *_all_needs(every, name)}}
        if _publishes(job) and ONLY_TAGS not in conditions:
            yield f"{RELEASE}: {name} publishes in a dry run"
        if name in CHAIN[:3] and conditions != {None}:
            yield f"{RELEASE}: {name} is left out of some run"


def jobs_can_run_again(files: Files) -> Iterator[str]:
    """An artifact of an earlier attempt hinders no job that runs again."""
    for path, document in files.workflows.items():
        for name, job in jobs(document).items():
            for inputs in _inputs(job, UPLOAD):
                if inputs.get("overwrite") is not True:
                    yield f"{path}: {name}: uploads {inputs.get('name')} without overwrite"
            for inputs in _inputs(job, PACK):
                if "github.run_attempt" not in str(inputs.get("name")):
                    yield f"{path}: {name}: packs an artifact that is not named by the attempt"
            for inputs in _inputs(job, DEPLOY):
                if not str(inputs.get("artifact_name")).startswith("${{ needs."):
                    yield f"{path}: {name}: deploys what no job before it has named"
            for inputs in _inputs(job, PYPI):
                if inputs.get("skip-existing") is not True:
                    yield f"{path}: {name}: fails where PyPI has a file already"


def records_are_dated(files: Files) -> Iterator[str]:
    """A job that signs the record of a smoke test refuses a wrong date: it is the one to repeat."""
    for path, document in files.workflows.items():
        for name, job in jobs(document).items():
            signs = any("/smoke/" in i.get("subject-path", "") for i in _inputs(job, ATTEST))
            runs = " ".join(step.get("run", "") for step in job.get("steps", []))
            if signs and not re.search(r"nox -s verify -- \S+/smoke/\S+ --sources ", runs):
                yield f"{path}: {name}: signs a record and does not verify its date"


def pages_are_deployed_from_the_branch(files: Files) -> Iterator[str]:
    """The environment of Pages admits the default branch alone: no tag and no pull request."""
    for path, document in files.workflows.items():
        others = set(document["on"]) - {"workflow_dispatch", "workflow_call"}
        for name, job in jobs(document).items():
            if _inputs(job, DEPLOY) and others:
                yield f"{path}: {name}: deploys Pages on {', '.join(sorted(others))}"


def least_permissions(files: Files) -> Iterator[str]:
    """Jobs that build may sign; only jobs of the release and of the index may write."""
    for path, document in files.workflows.items():
        if document.get("permissions") not in ({}, {"contents": "read"}):
            yield f"{path}: permissions of the workflow: {document.get('permissions')}"
        for name, job in jobs(document).items():
            if _publishes(job) and path not in (RELEASE, INDEX, PROJECT):
                yield f"{path}: {name} may write"


def _sessions(node: Node) -> set[str]:
    """The nox sessions with arguments that a job runs, if the job is the one for that session."""
    runs = [step.get("run", "") for step in node.job.get("steps", [])]
    names = {match[1] for run in runs if (match := re.match(r"nox -s (\S+) -- ", run))}
    top = node.name.partition(".")[0]
    return {name for name in names if top == {"dispatch": "index"}.get(name, name)}


def _artifacts(node: Node, action: str) -> list[str]:
    """Names or patterns of artifacts, with `*` in place of expressions; "of JOB" by its number."""
    return [
        f"of {number[1]}"
        if (number := BY_ID.fullmatch(inputs.get("artifact-ids", "")))
        else EXPRESSION.sub("*", str(inputs.get("name", inputs.get("pattern"))))
        for inputs in _inputs(node.job, action)
    ]


def _inputs(job: Mapping[str, Any], action: str) -> list[Mapping[str, Any]]:
    return [
        step.get("with", {})
        for step in job.get("steps", [])
        if re.match(re.escape(action) + "@", step.get("uses", ""))
    ]


def _publishes(job: Mapping[str, Any]) -> bool:
    """Whether a job may write anything but signatures."""
    permissions = job.get("permissions", {})
    if permissions == "write-all" or "environment" in job:
        return True
    written = {name for name, value in dict(permissions or {}).items() if value == "write"}
    return bool(written - SIGNING)
