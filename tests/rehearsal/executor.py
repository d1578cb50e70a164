"""Runs workflow files as the forge does: their own steps, job by job, as the runner's user.

What a job may use is made anew for it: its checkout, home, temporary folder, variables and token.
"""

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import yaml

from rehearsal.expressions import condition, fill, to_text
from rehearsal.forge import Forge, Token
from rehearsal.workflow import (
    Job,
    Permissions,
    Workflow,
    WorkflowError,
    check_nested,
    combinations,
    read_workflow,
)

HERE = Path(__file__).parent
BRANCH = "main"
# Variables of a machine that reach its jobs: where packages come from, and whom to trust.
_MACHINE = ("PIP_", "SSL_", "UV_", "CURL_", "REQUESTS_", "GIT_SSL", "http_proxy", "https_proxy")
_MACHINE += ("TORCHWHEEL_SNAPSHOTS", "CONTAINERS_CONF", "CIBW_CONTAINER_ENGINE", "DOCKER_HOST")
_BRANCH_ONLY = {"github-pages"}
"""Environments that admit the default branch alone, as that of Pages does unless told otherwise."""

Conclusion = Literal["success", "failure", "skipped"]


@dataclasses.dataclass(frozen=True)
class Event:
    """What starts a workflow."""

    name: str
    ref: str
    sha: str
    inputs: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def ref_name(self) -> str:
        """The ref without refs/heads/ or refs/tags/."""
        return self.ref.split("/", 2)[-1]


@dataclasses.dataclass(frozen=True)
class Lost:
    """A runner that is lost: at the start of a step, or while it runs.

    Attributes:
        job: the key of the job.
        step: the name of the step; empty for the first.
        request: a request of the step to the forge at which it ends; empty: before the step.
        seconds: after which it ends while the step runs; 0: before the step.
    """

    job: str
    step: str = ""
    request: str = ""
    seconds: float = 0


@dataclasses.dataclass(frozen=True)
class StepLog:
    """How a step went."""

    job: str
    step: str
    attempt: int
    seconds: float
    conclusion: str


@dataclasses.dataclass(frozen=True)
class JobResult:
    """How a job went, and its outputs."""

    conclusion: Conclusion
    outputs: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Run:
    """A run of a workflow, with all its attempts. `results` has each job by its key."""

    id: int
    path: str
    event: Event
    attempt: int = 0
    results: dict[str, JobResult] = dataclasses.field(default_factory=dict)

    @property
    def failed(self) -> list[str]:
        """The keys of the jobs that failed."""
        return [key for key, result in self.results.items() if result.conclusion == "failure"]

    @property
    def ok(self) -> bool:
        """Whether no job failed."""
        return not self.failed


@dataclasses.dataclass(frozen=True)
class Machine:
    """The runners.

    Attributes:
        root: the folder in which they work.
        user: the user and group of the jobs; None for the one that runs this.
        variables: more variables of the machine.
        clean: whether each job gets an empty home and tool cache. If not, they stay, as on a
            machine of one's own.
        python: the Python that has twine.
    """

    root: Path
    user: int | None
    variables: Mapping[str, str]
    clean: bool
    python: str


class _Stopped(Exception):  # noqa: N818 - no error: the runner is gone
    """The runner is lost."""


@dataclasses.dataclass
class Executor:
    """Starts workflows and repeats failed jobs.

    Attributes:
        forge: what they talk to.
        source: the repository, from which jobs check out.
        tree: a checkout of it, from which the forge reads workflows.
        pypi: the address of the package index to publish to.
        assume: jobs that are green without being run.
        lost: runners that will be lost, each once.
        log: of each step.
        say: reports each step.
    """

    forge: Forge
    source: Path
    tree: Path
    machine: Machine
    pypi: str = ""
    assume: frozenset[str] = frozenset()
    lost: list[Lost] = dataclasses.field(default_factory=list)
    log: list[StepLog] = dataclasses.field(default_factory=list)
    say: Callable[[str], None] = lambda _: None
    running: dict[int, Run] = dataclasses.field(default_factory=dict)

    def start(self, path: str, event: Event) -> Run:
        """Run a workflow that the event starts."""
        workflow = read_workflow(self.tree, path)
        if event.name not in workflow.triggers:
            raise WorkflowError(f"{path}: is not started by {event.name}")
        run = Run(self.forge.number(), path, event)
        self.again(run)
        return run

    def again(self, run: Run) -> None:
        """Run the jobs that did not succeed: the first time all of them."""
        run.attempt += 1
        workflow = read_workflow(self.tree, run.path)
        about = {"workflow": run.path.rpartition("/")[2], "databaseId": run.id, "conclusion": ""}
        github = self._github(run)
        inputs = self._inputs(workflow, "workflow_dispatch", run.event.inputs)
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
        return _git(self.source, "rev-parse", BRANCH)

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
                one = _Attempt(self, run, workflow, job, leg, own, slot)
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


@dataclasses.dataclass
class _Attempt:
    """One attempt at one job."""

    executor: Executor
    run: Run
    workflow: Workflow
    job: Job
    key: str
    context: dict[str, Any]
    slot: int

    def __post_init__(self) -> None:
        event, job, machine = self.run.event, self.job, self.executor.machine
        runner = machine.root / f"runner-{self.slot}"
        repository = self.executor.forge.repository.rpartition("/")[2]
        self.workspace = runner / "work" / repository / repository
        self.temp = runner / "temp"
        self.home = (runner if machine.clean else machine.root) / "home"
        self.kept = machine.root / f"kept-{self.slot}"
        self.token = self.executor.forge.issue(
            Token(
                job.permissions,
                self.run.id,
                self.run.attempt,
                self.workflow.path,
                self.run.path,
                event.ref,
                event.sha,
                event.name,
            )
        )
        self.env: dict[str, str] = {}
        self.path: list[str] = []
        self.steps: dict[str, Any] = {}

    def result(self) -> JobResult:
        """Run the steps; a lost runner or a failed step is a failure."""
        event = self.run.event
        if self.job.environment in _BRANCH_ONLY and event.ref != f"refs/heads/{BRANCH}":
            self._say(
                f"{event.ref_name} is not allowed to deploy to {self.job.environment} due to "
                "environment protection rules"
            )
            return JobResult("failure")
        self._prepare()
        self.context["github"] |= {"token": self.token, "workspace": str(self.workspace)}
        self.context["runner"] = {"temp": str(self.temp), "os": "Linux"}
        try:
            ok = self._run_steps(self.job.steps, self.steps)
        except _Stopped:
            self._say("the runner is lost")
            ok = False
        outputs = fill(self.job.raw.get("outputs", {}), {**self.context, "steps": self.steps})
        texts = {name: to_text(value) for name, value in outputs.items()}
        return JobResult("success" if ok else "failure", texts if ok else {})

    def _prepare(self) -> None:
        machine = self.executor.machine
        for folder in (self.workspace, self.temp, *([self.home] if machine.clean else ())):
            shutil.rmtree(folder, ignore_errors=True)
        for folder in (self.workspace, self.temp, self.home, self.kept, machine.root / "tools"):
            folder.mkdir(parents=True, exist_ok=True)
            if machine.user is not None:
                for path in (folder, folder.parent, folder.parent.parent):
                    if path.is_relative_to(machine.root) and path != machine.root:
                        os.chown(path, machine.user, machine.user)

    def _run_steps(self, steps: Sequence[Any], results: dict[str, Any], inner: str = "") -> bool:
        ok = True
        for number, step in enumerate(steps):
            status = {"success": ok, "failure": not ok, "always": True, "cancelled": False}
            context = {**self.context, "steps": results, "status": status, "env": self.env}
            name = step.get("name", step.get("id", f"step {number}"))
            text = step.get("if", "success()")
            asks = isinstance(text, str) and any(f"{word}(" in text for word in status)
            if not condition(text if asks else f"success() && ({text})", context):
                continue
            self._lose(name, before=True)
            begin = time.monotonic()
            passed, outputs = self._step(step, name, context)
            seconds = time.monotonic() - begin
            conclusion = "success" if passed else "failure"
            log = StepLog(
                self.key, f"{inner}{name}", self.run.attempt, round(seconds, 1), conclusion
            )
            self.executor.log.append(log)
            if "id" in step:
                results[step["id"]] = {"outputs": outputs, "conclusion": conclusion}
            ok = ok and passed
        return ok

    def _step(
        self, step: Mapping[str, Any], name: str, context: Mapping[str, Any]
    ) -> tuple[bool, dict[str, str]]:
        env = {key: to_text(value) for key, value in fill(step.get("env", {}), context).items()}
        uses = step.get("uses", "")
        if uses.startswith("$/"):
            return self._composite(uses.removeprefix("$/"), fill(step.get("with", {}), context))
        if uses:
            action, _, pin = uses.partition("@")
            if len(pin) != 40:
                raise WorkflowError(f"{self.key}: {uses} is not pinned")
            given = {k: to_text(v) for k, v in fill(step.get("with", {}), context).items()}
            env |= {"REHEARSAL_WITH": json.dumps(given), "REHEARSAL_TOKEN": self.token}
            # The Python that the machine has, whatever Python the job has set up.
            command = ["/usr/bin/python3", str(self.executor.machine.root / "stand-ins/actions.py")]
            return self._process(name, [*command, action], env)
        script = self.temp / "step.sh"
        script.write_text(to_text(fill(step["run"], context)), encoding="utf-8")
        options = ["--noprofile", "--norc", "-eo", "pipefail"] if "shell" in step else ["-e"]
        return self._process(name, ["bash", *options, str(script)], env)

    def _composite(self, path: str, given: Mapping[str, Any]) -> tuple[bool, dict[str, str]]:
        action = yaml.safe_load((self.executor.tree / path / "action.yml").read_text())
        declared = action.get("inputs", {})
        inputs = {name: about.get("default") for name, about in declared.items()} | dict(given)
        outer, self.context = self.context, {**self.context, "inputs": inputs}
        self.env["GITHUB_ACTION_PATH"] = str(self.executor.tree / path)
        try:
            return self._run_steps(action["runs"]["steps"], {}, f"{path.rpartition('/')[2]}: "), {}
        finally:
            self.context = outer
            del self.env["GITHUB_ACTION_PATH"]

    def _process(
        self, name: str, command: Sequence[str], env: Mapping[str, str]
    ) -> tuple[bool, dict[str, str]]:
        """Run a step's program as the job's user; its output goes to the job's log."""
        files = {f"GITHUB_{kind}": self.temp / kind.lower() for kind in ("OUTPUT", "ENV", "PATH")}
        user = self.executor.machine.user
        for file in files.values():
            file.write_text("")
            if user is not None:
                os.chown(file, user, user)
        folder = self.executor.machine.root / "logs"
        folder.mkdir(exist_ok=True)
        log = folder / f"{self.run.id}.{self.key}.{self.run.attempt}.log"
        with log.open("ab") as out:
            out.write(f"\n### {name}\n".encode())
            out.flush()
            process = subprocess.Popen(
                command,
                cwd=self.workspace,
                env=self._environment() | {k: str(v) for k, v in files.items()} | env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                **({} if user is None else {"user": user, "group": user, "extra_groups": []}),
            )
            with self._watch(name, process) as gone:
                process.wait(60 * float(self.job.raw.get("timeout-minutes", 360)))
        if gone.is_set():
            end_machine(self.workspace)
            raise _Stopped
        self.path[:0] = files["GITHUB_PATH"].read_text().split()
        self.env |= dict(_pairs(files["GITHUB_ENV"]))
        if process.returncode:
            tail = log.read_text(errors="replace").splitlines()[-12:]
            self._say("\n  ".join([f"{name}: exit status {process.returncode}", *tail]))
        return process.returncode == 0, dict(_pairs(files["GITHUB_OUTPUT"]))

    def _watch(self, name: str, process: "subprocess.Popen[bytes]") -> "_Watch":
        return _Watch(self.executor.forge, self._lose(name, before=False), process)

    def _lose(self, name: str, *, before: bool) -> Lost | None:
        """The loss that waits for this step."""
        for lost in self.executor.lost:
            here = lost.job == self.key and lost.step in ("", name)
            if here and before == (not lost.request and not lost.seconds):
                self.executor.lost.remove(lost)
                if before:
                    raise _Stopped
                return lost
        return None

    def _environment(self) -> dict[str, str]:
        machine, github = self.executor.machine, self.context["github"]
        path = [*self.path, str(machine.root / "bin"), "/usr/local/bin", "/usr/bin", "/bin"]
        path += ["/usr/sbin", "/sbin"]
        passed = {k: v for k, v in os.environ.items() if k.startswith(_MACHINE)}
        names = ("ref", "ref_name", "ref_type", "sha", "repository", "run_id", "run_attempt")
        facts = {f"GITHUB_{name.upper()}": str(github[name]) for name in (*names, "event_name")}
        return {
            **passed,
            **machine.variables,
            **facts,
            "GITHUB_SERVER_URL": self.executor.forge.address,
            "PATH": ":".join(path),
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            "CI": "true",
            "GITHUB_ACTIONS": "true",
            "GITHUB_WORKSPACE": str(self.workspace),
            "RUNNER_TEMP": str(self.temp),
            "RUNNER_OS": "Linux",
            "NO_PROXY": "127.0.0.1",
            "REHEARSAL_FORGE": self.executor.forge.address,
            "REHEARSAL_SOURCE": str(self.executor.source),
            "REHEARSAL_TOOLS": str(machine.root / "tools"),
            "REHEARSAL_KEPT": "" if machine.clean else str(self.kept),
            "REHEARSAL_CLEAN": "yes" if machine.clean else "",
            "REHEARSAL_PYPI": self.executor.pypi,
            "REHEARSAL_PYTHON": machine.python,
            **self.env,
        }

    def _say(self, text: str) -> None:
        self.executor.say(f"{self.key} (attempt {self.run.attempt}): {text}")


class _Watch:
    """Ends a step's process group when its runner is to be lost."""

    def __init__(self, forge: Forge, lost: Lost | None, process: "subprocess.Popen[bytes]") -> None:
        self.forge, self.lost, self.process = forge, lost, process
        self.gone = threading.Event()
        self.timer: threading.Timer | None = None

    def __enter__(self) -> threading.Event:
        if self.lost and self.lost.request:
            self.forge.seen = lambda request: self._end() if self.lost.request in request else None
        elif self.lost:
            self.timer = threading.Timer(self.lost.seconds, self._end)
            self.timer.start()
        return self.gone

    def _end(self) -> None:
        self.gone.set()
        os.killpg(self.process.pid, signal.SIGKILL)

    def __exit__(self, *_: object) -> None:
        if self.timer:
            self.timer.cancel()
        if self.lost:
            self.forge.seen = lambda _: None


def end_machine(workspace: Path) -> None:
    """End every program of a job, as the loss of its machine does."""
    mark = f"GITHUB_WORKSPACE={workspace}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                os.kill(int(folder.name), signal.SIGKILL)


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


def _pairs(file: Path) -> Iterator[tuple[str, str]]:
    for line in file.read_text().splitlines():
        name, found, value = line.partition("=")
        if found:
            yield name, value


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-c", "safe.directory=*", "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
