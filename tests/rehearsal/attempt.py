"""Runs the steps of a job, in a process group that ends when its runner is lost."""

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from rehearsal.expressions import condition, fill, to_text
from rehearsal.forge import Forge, Token
from rehearsal.runs import BRANCH, JobResult, Lost, Run, Site, StepLog
from rehearsal.workflow import Job, Workflow, WorkflowError

# Variables of a machine that reach its jobs: where packages come from, and whom to trust.
_MACHINE = ("PIP_", "SSL_", "UV_", "CURL_", "REQUESTS_", "GIT_SSL", "http_proxy", "https_proxy")
_MACHINE += ("TORCHWHEEL_SNAPSHOTS", "CONTAINERS_CONF", "CIBW_CONTAINER_ENGINE", "DOCKER_HOST")
_BRANCH_ONLY = {"github-pages"}
"""Environments that admit the default branch alone, as that of Pages does unless told otherwise."""


class _Stopped(Exception):  # noqa: N818 - no error: the runner is gone
    """The runner is lost."""


@dataclasses.dataclass
class Attempt:
    """One attempt at one job: its own steps, as the runner's user.

    What the job may use is made anew for it: its checkout, home, temporary folder, variables and
    token.
    """

    site: Site
    run: Run
    workflow: Workflow
    job: Job
    key: str
    context: dict[str, Any]
    slot: int

    def __post_init__(self) -> None:
        event, job, machine = self.run.event, self.job, self.site.machine
        # A pull request may come from a fork: its jobs read alone, and sign nothing.
        reads = dict.fromkeys(job.permissions, "read")
        runner = machine.root / f"runner-{self.slot}"
        repository = self.site.forge.repository.rpartition("/")[2]
        self.workspace = runner / "work" / repository / repository
        self.temp = runner / "temp"
        self.home = (runner if machine.clean else machine.root) / "home"
        self.kept = machine.root / f"kept-{self.slot}"
        self.token = self.site.forge.issue(
            Token(
                reads if event.name == "pull_request" else job.permissions,
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
        machine = self.site.machine
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
            self.site.log.append(log)
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
            command = ["/usr/bin/python3", str(self.site.machine.root / "stand-ins/actions.py")]
            return self._process(name, [*command, action], env)
        script = self.temp / "step.sh"
        script.write_text(to_text(fill(step["run"], context)), encoding="utf-8")
        options = ["--noprofile", "--norc", "-eo", "pipefail"] if "shell" in step else ["-e"]
        return self._process(name, ["bash", *options, str(script)], env)

    def _composite(self, path: str, given: Mapping[str, Any]) -> tuple[bool, dict[str, str]]:
        action = yaml.safe_load((self.site.tree / path / "action.yml").read_text())
        declared = action.get("inputs", {})
        inputs = {name: about.get("default") for name, about in declared.items()} | dict(given)
        outer, self.context = self.context, {**self.context, "inputs": inputs}
        self.env["GITHUB_ACTION_PATH"] = str(self.site.tree / path)
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
        user = self.site.machine.user
        for file in files.values():
            file.write_text("")
            if user is not None:
                os.chown(file, user, user)
        folder = self.site.machine.root / "logs"
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
        return _Watch(self.site.forge, self._lose(name, before=False), process)

    def _lose(self, name: str, *, before: bool) -> Lost | None:
        """The loss that waits for this step."""
        for lost in self.site.lost:
            here = lost.job == self.key and lost.step in ("", name)
            if here and before == (not lost.request and not lost.seconds):
                self.site.lost.remove(lost)
                if before:
                    raise _Stopped
                return lost
        return None

    def _environment(self) -> dict[str, str]:
        machine, github = self.site.machine, self.context["github"]
        path = [*self.path, str(machine.root / "bin"), "/usr/local/bin", "/usr/bin", "/bin"]
        path += ["/usr/sbin", "/sbin"]
        passed = {k: v for k, v in os.environ.items() if k.startswith(_MACHINE)}
        names = ("ref", "ref_name", "ref_type", "sha", "repository", "run_id", "run_attempt")
        facts = {f"GITHUB_{name.upper()}": str(github[name]) for name in (*names, "event_name")}
        return {
            **passed,
            **machine.variables,
            **facts,
            **_clock(machine.root, self.site.clocks.get(self.key, 0)),
            "GITHUB_SERVER_URL": self.site.forge.address,
            "PATH": ":".join(path),
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            "CI": "true",
            "GITHUB_ACTIONS": "true",
            "GITHUB_WORKSPACE": str(self.workspace),
            "RUNNER_TEMP": str(self.temp),
            "RUNNER_OS": "Linux",
            "NO_PROXY": "127.0.0.1",
            "REHEARSAL_FORGE": self.site.forge.address,
            "REHEARSAL_SOURCE": str(self.site.source),
            "REHEARSAL_TOOLS": str(machine.root / "tools"),
            "REHEARSAL_KEPT": "" if machine.clean else str(self.kept),
            "REHEARSAL_CLEAN": "yes" if machine.clean else "",
            "REHEARSAL_PYPI": self.site.pypi,
            "REHEARSAL_PYTHON": machine.python,
            **self.env,
        }

    def _say(self, text: str) -> None:
        self.site.say(f"{self.key} (attempt {self.run.attempt}): {text}")


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


def _clock(root: Path, ahead: int) -> dict[str, str]:
    """Variables that let every program see a clock which is `ahead` by seconds."""
    if not ahead:
        return {}
    library = root / "clock.so"
    if not library.exists():
        source = Path(__file__).with_name("clock.c")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    return {"LD_PRELOAD": str(library), "CLOCK_AHEAD": str(ahead)}


def end_machine(workspace: Path) -> None:
    """End every program of a job, as the loss of its machine does."""
    mark = f"GITHUB_WORKSPACE={workspace}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                os.kill(int(folder.name), signal.SIGKILL)


def _pairs(file: Path) -> Iterator[tuple[str, str]]:
    for line in file.read_text().splitlines():
        name, found, value = line.partition("=")
        if found:
            yield name, value
