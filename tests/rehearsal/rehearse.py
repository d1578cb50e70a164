"""Rehearses a release: `python -m rehearsal.rehearse VERSION`, by `nox -s rehearse -- VERSION`.

A tag becomes a release on a forge on loopback, by the workflow files' own steps, and each wheel is
installed from the index and from the package index. The next tag is released twice from the same
state: undisturbed, and then while every job loses its runner once and runs again. In the last
release the forge and the network fail at each kind of request. Dry runs publish nothing, and a job
whose clock is wrong fails itself.
"""

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from rehearsal.differences import Differences, differences
from rehearsal.forge import Release, RequestFault
from rehearsal.public import public_faults
from rehearsal.runs import BRANCH, Event, Lost, Run
from rehearsal.setting import RELEASE, Setting, setting
from rehearsal.sources import Form

QUICK = Form(("pure",), clean=False, smoke=("test_load.py",))
FULL = ("pure", "cu130-stable", "cu132-stable")
HALFWAY = (
    Lost("assets", "Publish the assets", request="POST /releases"),
    Lost("assets", "Publish the assets", request=".whl.metadata"),
    Lost("assets", "Publish the assets", request="PATCH /releases"),
    Lost("index", "Rebuild the index from the default branch", request="POST /dispatches"),
    Lost("build", "Build the index"),
    Lost("deploy", "Publish the index", request="POST /pages"),
    Lost("pypi", "Publish what PyPI takes", request="POST /pypi/"),
)
"""Runners that are lost while they publish, at a request; those of index.yml too, which the release
starts."""
BUILD, SMOKE, ASSEMBLE = "wheels.build[pure]", "smoke.smoke[pure]", "assemble"
CLOCKS = (
    (SMOKE, 240, ""),
    (SMOKE, 3600, "later than its signature"),
    (SMOKE, -3600, "before the commit of"),
    (BUILD, 3600, "later than its signature"),
)
"""A job, the seconds that its clock is ahead, and why it refuses its record; empty: it does not."""
BY_HAND = "v0.0.1"
"""The tag of a release that somebody made by hand, without a file."""
RUNNER = 1001
"""The user of a hosted runner."""
_CHECKED_ELSEWHERE = frozenset({"ci"})


class RehearsalError(Exception):
    """The release did not behave as it must."""


@dataclasses.dataclass
class Rehearsal:
    """A setting, and what happened in it, with times."""

    setting: Setting
    say: Callable[[str], None] = print
    begin: float = dataclasses.field(default_factory=time.monotonic)
    events: list[dict[str, Any]] = dataclasses.field(default_factory=list)

    def note(self, what: str, **about: object) -> None:
        """Record a thing that happened."""
        seconds = round(time.monotonic() - self.begin, 1)
        self.events.append({"seconds": seconds, "what": what, **about})
        self.say(f"{seconds:8.1f}s  {what}")

    def check(self) -> None:
        """Nothing is half published."""
        if faults := list(public_faults(self.setting)):
            raise RehearsalError("half published:\n" + "\n".join(faults))

    def release(self, event: Event, lost: Sequence[Lost] = ()) -> Run:
        """Start a release and repeat what failed, as a maintainer would, until all is green."""
        executor = self.setting.executor
        executor.lost[:] = lost
        most = 40 if lost or self.setting.forge.faults else 1
        run = executor.start(RELEASE, event)
        self.check()
        while not run.ok:
            if run.attempt >= most:
                raise RehearsalError(f"still failing after {run.attempt} attempts: {run.failed}")
            self.note(f"attempt {run.attempt} failed", jobs=run.failed)
            executor.again(run)
            self.check()
        if executor.lost:
            raise RehearsalError(f"a step was never reached: {executor.lost}")
        self.note(f"{event.ref_name}: released", attempts=run.attempt)
        return run

    def twice(self, version: str, lost: Sequence[Lost]) -> Differences:
        """Release a further version undisturbed, take it back, and release it under losses."""
        event = self.setting.tag(version)
        restore, before = self.setting.save(), self.setting.public()
        self.release(event)
        undisturbed = {n: path.read_bytes() for n, path in self.setting.public_files().items()}
        restore()
        self.next(event, lost, [])
        files = {n: path.read_bytes() for n, path in self.setting.public_files().items()}
        found = differences(undisturbed, files)
        if found.faults:
            raise RehearsalError(f"{version}: lost runners changed\n" + "\n".join(found.faults))
        new = [name for name, digest in self.setting.public().items() if before.get(name) != digest]
        same = len(new) - len(found.allowed)
        self.note(f"{same} of {len(new)} new files are the same as undisturbed")
        for name, reasons in found.allowed.items():
            self.say(f"           {name} differs by {', '.join(reasons)}")
        return found

    def next(self, event: Event, lost: Sequence[Lost], faults: Sequence[RequestFault]) -> None:
        """Release a further version under losses and faults; what was public keeps its bytes."""
        before, version = self.setting.public(), event.ref_name
        self.setting.forge.faults[:] = faults
        self.release(event, lost)
        if left := [fault for fault in self.setting.forge.faults if fault.count]:
            raise RehearsalError(f"no request met {left}")
        after = self.setting.public()
        changed = [n for n in before if not n.startswith("page ") and after.get(n) != before[n]]
        if changed:
            raise RehearsalError(f"{version} changed what was published: {changed}")
        what = "each job lost its runner once" if lost else "faults of the forge and the network"
        self.note(what, installed=len(install(self)))

    def dry_run(self, event: Event) -> Run:
        """A run without a tag does all but publish."""
        before = self.setting.public()
        run = self.setting.executor.start(RELEASE, event)
        skipped = [key for key, result in run.results.items() if result.conclusion == "skipped"]
        if not run.ok or self.setting.public() != before:
            raise RehearsalError(f"the dry run failed or published: {run.results}")
        self.note(f"dry run by {event.name}", skipped=skipped)
        return run

    def missing_wheel(self, run: Run) -> None:
        """Without a wheel that is selected a dry run fails."""
        self.setting.forge.faults[:] = [RequestFault("hide", "GET /artifacts wheel-")]
        self.setting.executor.again(run, [ASSEMBLE])
        if run.failed != [ASSEMBLE] or not self.said(run, ASSEMBLE, "no wheel; it is selected"):
            raise RehearsalError(f"a wheel is missing: {run.failed}")
        self.note("the dry run failed without its wheel")

    def clocks(self, run: Run) -> list[dict[str, Any]]:
        """Repeat jobs of a run where the clock is wrong by minutes, then by an hour.

        Minutes are taken. After an hour the job itself fails, so to repeat what failed is enough.
        """
        executor, tried = self.setting.executor, []
        for job, ahead, expected in CLOCKS:
            executor.clocks[job] = ahead
            executor.again(run, [BUILD, SMOKE, ASSEMBLE] if job == BUILD else [SMOKE, ASSEMBLE])
            said = self.said(run, job, "was smoke-tested at")
            if run.failed != ([job] if expected else []) or len(said) != len(run.failed):
                raise RehearsalError(f"a clock {ahead} s ahead: {run.failed}, {said}")
            if expected and expected not in said[0]:
                raise RehearsalError(f"a clock {ahead} s ahead: expected {expected}, found {said}")
            verdict = said[0][said[0].index("was ") :] if said else "taken"
            self.note(f"{job}, a clock {ahead} s ahead: {verdict}")
            tried.append({"job": job, "ahead": ahead, "verdict": verdict})
            del executor.clocks[job]
            if expected:
                executor.again(run)
            if not run.ok:
                raise RehearsalError(f"the clock is right again: {run.failed}")
        return tried

    def said(self, run: Run, job: str, words: str) -> list[str]:
        """The lines with these words in the log of a job's last attempt."""
        logs = self.setting.executor.machine.root / "logs"
        text = (logs / f"{run.id}.{job}.{run.attempt}.log").read_text()
        return [line for line in text.splitlines() if words in line]


def install(rehearsal: Rehearsal) -> list[str]:
    """Install each wheel of the release from the index, and from the package index."""
    setting = rehearsal.setting
    installed: list[str] = []
    for tag, name, _ in setting.forge.published():
        if not name.endswith(".whl"):
            continue
        project, version, *_ = name.split("-")
        groups = sorted(
            str(page.parent.parent.relative_to(setting.forge.pages))
            for page in setting.forge.pages.rglob(f"{project.replace('_', '-')}/index.html")
            if name in page.read_text(encoding="utf-8")
        )
        if not groups:
            raise RehearsalError(f"{name} of {tag} is in no group of the index")
        index = f"{setting.forge.address}/pages/{groups[0]}/"
        installed += _pip(index, f"{project}=={version}", name)
    for path in sorted(setting.packages.glob("*.whl")):
        project, version, *_ = path.name.split("-")
        installed += _pip(f"{setting.pypi}/simple/", f"{project}=={version}", "")
    return installed


def _pip(index: str, requirement: str, file: str) -> list[str]:
    """Download by pip as for any machine, and install; returns what was done."""
    with tempfile.TemporaryDirectory() as folder:
        environ = {k: v for k, v in os.environ.items() if not k.startswith("PIP_")}
        base = [sys.executable, "-m", "pip", "--isolated", "install", "--quiet", "--no-deps"]
        options = ["--index-url", index, "--target", folder, "--pre"]
        if "cp3" in file:
            tags = file.removesuffix(".whl").split("-")[-3:]
            options += ["--python-version", tags[0].removeprefix("cp"), "--implementation", "cp"]
            options += [*(f"--platform={p}" for p in tags[2].split(".")), "--only-binary=:all:"]
        environ["PIP_CONFIG_FILE"] = os.devnull
        done = subprocess.run(
            [*base, *options, requirement], env=environ, check=False, capture_output=True, text=True
        )
        if done.returncode:
            raise RehearsalError(f"{requirement} from {index}: {done.stderr.strip()[-500:]}")
    return [f"{requirement} from {index}"]


def losses(run: Run, setting: Setting) -> list[Lost]:
    """For each job of a run, the loss of its runner before its last step; then those halfway."""
    last: dict[str, str] = {}
    for entry in setting.executor.log:
        if entry.job in run.results and ": " not in entry.step:
            last[entry.job] = entry.step
    every = [*(Lost(job, step) for job, step in last.items()), *HALFWAY]
    # What `torchwheel adopt` and `new` write uploads nothing to the package index.
    return [entry for entry in every if entry.job != "pypi" or "pypi" in run.results]


def rehearse(version: str, form: Form, root: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """All of it; returns the log."""
    variables = {"SCCACHE_DISABLE": "1"}
    if form.user is None and not form.clean:
        variables["TORCHWHEEL_CACHE"] = os.environ.get(
            "TORCHWHEEL_CACHE", str(Path.home() / ".cache" / "torchwheel")
        )
    with setting(root, form, variables) as made:
        made.executor.assume = _CHECKED_ELSEWHERE
        made.executor.say = say
        rehearsal = Rehearsal(made, say)
        rehearsal.note(f"rehearsing {version}", variants=form.variants, user=form.user)
        made.forge.releases.append(Release(made.forge.number(), BY_HAND, draft=False))
        event = made.tag(version)
        run = rehearsal.release(event)
        first = made.public()
        rehearsal.note("public", files=len(first))
        installed = install(rehearsal)
        rehearsal.note("installed", wheels=installed)
        lost = losses(run, made)
        more = _ours if form.origin == "ours" else _scaffolded
        found = more(rehearsal, version, lost)
        return {
            "schema": 1,
            "date": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "version": version,
            "form": dataclasses.asdict(form),
            "events": rehearsal.events,
            "steps": [dataclasses.asdict(entry) for entry in made.executor.log],
            "public": first,
            "lost": [dataclasses.asdict(entry) for entry in lost],
            **found,
        }


def _ours(rehearsal: Rehearsal, version: str, lost: Sequence[Lost]) -> dict[str, Any]:
    """What follows the first release; returns what the log says of it."""
    made = rehearsal.setting
    found = rehearsal.twice(_later(version, 1), lost)
    rehearsal.next(made.tag(_later(version, 2)), [], faults())
    commit = made.commit(_later(version, 3))
    by_hand = Event("workflow_dispatch", f"refs/heads/{BRANCH}", commit, {"selection": "pure"})
    clocks = rehearsal.clocks(rehearsal.dry_run(by_hand))
    rehearsal.missing_wheel(rehearsal.dry_run(_pull_request(commit)))
    return {
        "differences": dict(found.allowed),
        "clocks": clocks,
        "faults": [dataclasses.asdict(fault) for fault in faults()],
    }


def _scaffolded(rehearsal: Rehearsal, version: str, lost: Sequence[Lost]) -> dict[str, Any]:
    """The same workflows: a release under losses, and the dry run of a pull request."""
    made = rehearsal.setting
    rehearsal.next(made.tag(_later(version, 1)), lost, [])
    rehearsal.dry_run(_pull_request(made.commit(_later(version, 2))))
    return {}


def _pull_request(commit: str) -> Event:
    return Event("pull_request", "refs/pull/1/merge", commit)


def _later(version: str, by: int) -> str:
    """A later version: "1.2.3rc1" becomes "1.2.3rc2"."""
    base = version.rstrip("0123456789")
    return f"{base}{int(version[len(base) :] or 0) + by}"


def faults() -> list[RequestFault]:
    """One fault of each kind of request. Those of a larger count outlast what an action repeats."""
    return [
        RequestFault("500", "POST /artifacts", 3),
        RequestFault("lost", "POST /artifacts"),
        RequestFault("cut", "POST /artifacts"),
        RequestFault("500", "POST /attestations", 3),
        RequestFault("hide", "GET /artifacts smoke-"),
        RequestFault("500", r"GET .*/releases/download/.*/catalogue\.json$"),
        RequestFault("flip", r"GET .*/releases/download/.*/catalogue\.json$"),
        RequestFault("flip", r"GET /artifacts/\d"),
        RequestFault("500", "POST /releases"),
        RequestFault("cut", r"PUT .*\.whl$"),
        RequestFault("lost", "PUT .*SHA256SUMS"),
        RequestFault("500", "PATCH /releases"),
        RequestFault("500", "POST /dispatches"),
        RequestFault("500", "POST /pages", 3),
        RequestFault("500", r"POST /pypi/.*\.whl$", 5),
        RequestFault("cut", r"POST /pypi/.*\.whl$"),
        RequestFault("flip", r"POST /pypi/.*\.whl$"),
        RequestFault("lost", r"POST /pypi/.*\.whl$"),
        RequestFault("cut", r"POST /pypi/.*\.tar\.gz$"),
    ]


def _python() -> str:
    """The tag of the Python that jobs have, e.g. "cp312"."""
    text = "import sys; print('cp%d%d' % sys.version_info[:2])"
    command = ["/usr/bin/python3", "-c", text]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def main(argv: Sequence[str] | None = None) -> int:
    """Rehearse, and write the log."""
    parser = argparse.ArgumentParser(description="Rehearses a release.")
    parser.add_argument("version", help="of the release, e.g. 1.2.3rc1")
    parser.add_argument(
        "form",
        nargs="?",
        choices=("full", "quick", "adopted", "new"),
        default="full",
        help="quick: the pure wheel alone, as this user; adopted: a small foreign project for two "
        "torches; new: what `torchwheel new` writes (default: full)",
    )
    parser.add_argument(
        "--here", action="store_true", help="as this user, whose home, caches and images are used"
    )
    parser.add_argument(
        "--warm", action="store_true", help="jobs keep their home, as on a machine of one's own"
    )
    parser.add_argument("--variant", action="append", help="another variant; may be repeated")
    parser.add_argument("--record", type=Path, help="JSON file that gets the log")
    parser.add_argument("--keep", type=Path, help="an empty folder for all that is made")
    options = parser.parse_args(argv)
    quick = options.form == "quick"
    user = RUNNER if os.geteuid() == 0 and not quick else None
    # The stand-in of setup-python has the Python of the machine alone.
    torches = tuple(f"cu130-torch{minor}-{_python()}" for minor in ("2.11", "2.13"))
    if quick:
        form = QUICK
    elif options.form == "adopted":
        form = Form(torches, user=user, origin="adopt")
    elif options.form == "new":
        form = Form(("universal", "pure", "cu130-stable"), user=user, origin="new")
    else:
        form = Form((*FULL, torches[0]), user=user)
    if options.warm or options.here:
        form = dataclasses.replace(form, clean=False)
    if options.here:
        form = dataclasses.replace(form, user=None)
    if options.variant:
        form = dataclasses.replace(form, variants=tuple(options.variant))
    with tempfile.TemporaryDirectory(prefix="rehearsal-", ignore_cleanup_errors=True) as folder:
        log = rehearse(options.version, form, options.keep or Path(folder), print)
        if options.record:
            options.record.write_text(json.dumps(log, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
