"""Workflow files as the executor needs them. Steps stay as they are written in the file."""

import dataclasses
import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

Permissions = Mapping[str, str]
_LEVELS = {"none": 0, "read": 1, "write": 2}


class WorkflowError(Exception):
    """The forge would not start this workflow."""


@dataclasses.dataclass(frozen=True)
class Job:
    """A job of a workflow.

    Attributes:
        id: its key.
        raw: the job as the file has it.
        needs: the jobs before it.
        uses: the path of the workflow that it calls, if it calls one.
        permissions: what its token may do; those of the workflow if it says nothing.
        environment: the name of its environment; empty if it has none.
    """

    id: str
    raw: Mapping[str, Any]
    needs: tuple[str, ...]
    uses: str
    permissions: Permissions
    environment: str

    @property
    def steps(self) -> list[Any]:
        """The steps."""
        return list(self.raw.get("steps", []))


@dataclasses.dataclass(frozen=True)
class Workflow:
    """A workflow file.

    Attributes:
        path: below the root of the repository.
        triggers: the events that start it, with what each says.
        run_name: the title of its runs, as a text with expressions.
        jobs: the jobs in an order in which all `needs` come first.
    """

    path: str
    triggers: Mapping[str, Any]
    run_name: str
    jobs: tuple[Job, ...]


def read_workflow(root: Path, path: str) -> Workflow:
    """Parse a workflow file."""
    document = yaml.safe_load((root / path).read_text(encoding="utf-8"))
    # YAML 1.1 reads the key `on` as true.
    triggers = document.get("on", document.get(True))
    if isinstance(triggers, str | list):
        triggers = dict.fromkeys([triggers] if isinstance(triggers, str) else triggers)
    outer = _permissions(document.get("permissions", {"contents": "read"}))
    jobs = {name: _job(name, raw, outer) for name, raw in document["jobs"].items()}
    name = document.get("run-name", document.get("name", path))
    return Workflow(path, triggers, name, _ordered(jobs))


def _job(name: str, raw: Mapping[str, Any], outer: Permissions) -> Job:
    needs = raw.get("needs", [])
    environment = raw.get("environment", "")
    return Job(
        id=name,
        raw=raw,
        needs=(needs,) if isinstance(needs, str) else tuple(needs),
        uses=str(raw.get("uses", "")).removeprefix("$/"),
        permissions=_permissions(raw["permissions"]) if "permissions" in raw else outer,
        environment=environment if isinstance(environment, str) else environment["name"],
    )


def _permissions(value: object) -> Permissions:
    if isinstance(value, Mapping):
        return dict(value)
    if value == "read-all":
        return {"contents": "read", "actions": "read", "attestations": "read", "pages": "read"}
    raise WorkflowError(f"permissions: {value!r} is not known here; name each")


def _ordered(jobs: Mapping[str, Job]) -> tuple[Job, ...]:
    ordered: dict[str, Job] = {}
    while len(ordered) < len(jobs):
        ready = [j for n, j in jobs.items() if n not in ordered and set(j.needs) <= set(ordered)]
        if not ready:
            raise WorkflowError("jobs need each other in a circle, or one that is not there")
        ordered |= {job.id: job for job in ready}
    return tuple(ordered.values())


def allowed(permissions: Permissions, name: str, level: str) -> bool:
    """Whether a token has a permission at a level; to write includes to read."""
    return _LEVELS[permissions.get(name, "none")] >= _LEVELS[level]


def check_nested(caller: Permissions, called: Permissions, where: str) -> None:
    """A called workflow's job may have no permission that its caller lacks."""
    for name, level in called.items():
        if not allowed(caller, name, level):
            raise WorkflowError(
                f"{where}: requests {name}: {level}, but its caller allows "
                f"{name}: {caller.get(name, 'none')}"
            )


def combinations(matrix: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The jobs of a strategy's matrix: the product of its lists, or its `include`."""
    lists = {key: value for key, value in matrix.items() if key not in ("include", "exclude")}
    included = [dict(entry) for entry in matrix.get("include", [])]
    if (lists and included) or "exclude" in matrix:
        raise WorkflowError("a matrix with lists and include, or exclude, is not known here")
    rows = [dict(zip(lists, values, strict=True)) for values in itertools.product(*lists.values())]
    found = included or (rows if lists else [])
    if not found:
        raise WorkflowError("a strategy's matrix has no job; the forge refuses it")
    return found
