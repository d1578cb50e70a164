"""Runs workflow files as the forge does: job by job, and again what failed."""

import dataclasses
import os
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rehearsal.attempt import Attempt
from rehearsal.expressions import condition, fill, to_text
from rehearsal.runs import BRANCH, Conclusion, Event, JobResult, Run, Site
from rehearsal.workflow import (
    Job,
    Permissions,
    Workflow,
    WorkflowError,
    check_nested,
    combinations,
    read_workflow,
)

_GIT_CONFIG = Path(__file__).with_name("gitconfig")


@dataclasses.dataclass
class Executor(Site):
    """Starts workflows and repeats failed jobs.

    Attributes:
        assume: jobs that are green without being run.
        running: the run on each runner, by its number.
    """

    assume: frozenset[str] = frozenset()
    running: dict[int, Run] = dataclasses.field(default_factory=dict)

    def start(self, path: str, event: Event) -> Run:
        """Run a workflow that the event starts."""
        workflow = read_workflow(self.tree, path)
        if event.name not in workflow.triggers:
            raise WorkflowError(f"{path}: is not started by {event.name}")
        run = Run(self.forge.number(), path, event)
        self.again(run)
        return run

    def again(self, run: Run, anew: Sequence[str] = ()) -> None:
        """Run the jobs that did not succeed, the first time all of them; and those of `anew`."""
        run.attempt += 1
        for key in anew:
            del run.results[key]
        workflow = read_workflow(self.tree, run.path)
        about = {"workflow": run.path.rpartition("/")[2], "databaseId": run.id, "conclusion": ""}
        github = self._github(run)
        by_hand = run.event.name == "workflow_dispatch"
        # Another event gives no inputs, not even their defaults.
        inputs = self._inputs(workflow, run.event.name, run.event.inputs) if by_hand else {}
        title = to_text(fill(workflow.run_name, {"github": github, "inputs": inputs}))
        with self.forge.lock:
            self.forge.runs = [r for r in self.forge.runs if r["databaseId"] != run.id]
            self.forge.runs.append({**about, "displayTitle": title})
        slot = self._slot(run)
        try:
            self._jobs(run, workflow, "", inputs, None, slot)
        finally:
            self.running.pop(slot)
            with self.forge.lock:
                self.forge.runs[:] = [
                    {**r, "conclusion": "success" if run.ok else "failure"}
                    if r["databaseId"] == run.id
                    else r
                    for r in self.forge.runs
                ]

    def dispatch(self, workflow: str, ref: str, inputs: Mapping[str, str]) -> None:
        """Start a workflow beside the run that asks for it."""
        event = Event("workflow_dispatch", f"refs/heads/{ref}", self.head, inputs)
        path = f".github/workflows/{workflow}"
        threading.Thread(target=self.start, args=(path, event), daemon=True).start()

    @property
    def head(self) -> str:
        """The commit of the default branch."""
        return git(self.source, "rev-parse", BRANCH)

    def _slot(self, run: Run) -> int:
        """A runner that is free; the first has number 1."""
        with self.forge.lock:
            slot = next(n for n in range(1, 100) if n not in self.running)
            self.running[slot] = run
        return slot

    def _jobs(
        self,
        run: Run,
        workflow: Workflow,
        prefix: str,
        inputs: Mapping[str, Any],
        caller: Permissions | None,
        slot: int,
    ) -> dict[str, JobResult]:
        """Run the jobs of a workflow in order. `caller` has the permissions of the calling job."""
        done: dict[str, JobResult] = {}
        for job in workflow.jobs:
            if caller is not None:
                check_nested(caller, job.permissions, f"{workflow.path}: {job.id}")
            key = f"{prefix}{job.id}"
            needs = {
                n: {"result": done[n].conclusion, "outputs": done[n].outputs} for n in job.needs
            }
            context = {
                "github": self._github(run, job.id),
                "inputs": inputs,
                "needs": needs,
                "vars": {},
                "status": _status({result["result"] for result in needs.values()}),
            }
            if not _wanted(job.raw, context, {done[n].conclusion for n in job.needs}):
                done[job.id] = run.results[key] = JobResult("skipped")
            elif key in self.assume:
                done[job.id] = JobResult("success")
            elif job.uses:
                done[job.id] = self._called(run, job, key, context, slot)
            else:
                done[job.id] = self._legs(run, workflow, job, key, context, slot)
        return done

    def _called(
        self, run: Run, job: Job, key: str, context: Mapping[str, Any], slot: int
    ) -> JobResult:
        """A called workflow, and its outputs."""
        called = read_workflow(self.tree, job.uses)
        given = fill(job.raw.get("with", {}), context)
        declared = called.triggers["workflow_call"] or {}
        inputs = self._inputs(called, "workflow_call", given)
        results = self._jobs(run, called, f"{key}.", inputs, job.permissions, slot)
        jobs = {name: {"outputs": result.outputs} for name, result in results.items()}
        outer = {"github": context["github"], "inputs": inputs, "jobs": jobs}
        outputs = {
            name: to_text(fill(about["value"], outer))
            for name, about in (declared.get("outputs") or {}).items()
        }
        return JobResult(_together([r.conclusion for r in results.values()]), outputs)

    def _legs(
        self,
        run: Run,
        workflow: Workflow,
        job: Job,
        key: str,
        context: dict[str, Any],
        slot: int,
    ) -> JobResult:
        """A job, or one for each combination of its matrix."""
        matrix = fill(job.raw.get("strategy", {}).get("matrix"), context)
        results: list[JobResult] = []
        for row in combinations(matrix) if matrix else [None]:
            leg = key if row is None else f"{key}[{next(iter(row.values()))}]"
            before = run.results.get(leg)
            if before is None or before.conclusion != "success":
                own = {**context, "matrix": row or {}, "strategy": {}}
                one = Attempt(self, run, workflow, job, leg, own, slot)
                run.results[leg] = one.result()
            results.append(run.results[leg])
        outputs = {k: v for result in results for k, v in result.outputs.items()}
        return JobResult(_together([result.conclusion for result in results]), outputs)

    def _inputs(self, workflow: Workflow, trigger: str, given: Mapping[str, Any]) -> dict[str, Any]:
        declared = ((workflow.triggers.get(trigger) or {}).get("inputs")) or {}
        for name, about in declared.items():
            if about.get("required") and name not in given:
                raise WorkflowError(f"{workflow.path}: input {name} is missing")
        if unknown := sorted(set(given) - set(declared)):
            raise WorkflowError(f"{workflow.path}: no input {unknown[0]}")
        return {name: given.get(name, about.get("default")) for name, about in declared.items()}

    def _github(self, run: Run, job: str = "") -> dict[str, Any]:
        event = run.event
        return {
            "event_name": event.name,
            "event": {"repository": {"default_branch": BRANCH}, "inputs": event.inputs},
            "ref": event.ref,
            "ref_name": event.ref_name,
            "ref_type": "tag" if event.ref.startswith("refs/tags/") else "branch",
            "sha": event.sha,
            "repository": self.forge.repository,
            "server_url": self.forge.address,
            "run_id": run.id,
            "run_number": run.id,
            "run_attempt": run.attempt,
            "workflow": run.path,
            "job": job,
        }


def _wanted(raw: Mapping[str, Any], context: Mapping[str, Any], before: set[Conclusion]) -> bool:
    """Whether a job runs: by its `if`, and only if those before it succeeded."""
    text = raw.get("if")
    if text is None:
        return before <= {"success"}
    return before <= {"success"} and condition(text, context)


def _status(results: set[str]) -> dict[str, bool]:
    return {
        "success": results <= {"success"},
        "failure": "failure" in results,
        "always": True,
        "cancelled": False,
    }


def _together(conclusions: Sequence[Conclusion]) -> Conclusion:
    if "failure" in conclusions:
        return "failure"
    # A job that needs one that was skipped is skipped too.
    return "success" if set(conclusions) == {"success"} else "skipped"


def git(folder: Path, *arguments: str) -> str:
    """What git prints in a folder. The repositories may belong to the jobs' user."""
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments],
        env={**os.environ, "GIT_CONFIG_GLOBAL": str(_GIT_CONFIG)},
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout.strip()
