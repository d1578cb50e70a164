"""Checks of the commands and of uses."""

import contextlib
import io
import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from workflow_files import LOCAL, ROOT, Files, Session, jobs, local, sessions, steps

from rehearsal.expressions import fill
from torchwheel.cli import parser

# Checks of `uses`: actions are pinned, local actions and workflows get their inputs.


_PINNED = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}")
_COMMENTED = re.compile(r"uses: [\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$")


def every_use_is_pinned(files: Files) -> Iterator[str]:
    """Each action is pinned by 40 hex digits with the version beside them, or is a local one."""
    for path, document in files.documents.items():
        for part in [*jobs(document).values(), *steps(document)]:
            uses = part.get("uses")
            if uses is None:
                continue
            if uses.startswith(LOCAL):
                if local(uses) not in files.texts:
                    yield f"{path}: {uses} is not there"
            elif not _PINNED.fullmatch(uses):
                yield f"{path}: {uses} is not pinned by 40 hex digits"
    for path, text in files.texts.items():
        for line in text.splitlines():
            if re.search(r"uses: .*@", line) and not _COMMENTED.search(line):
                yield f"{path}: no version beside the pin: {line.strip()}"


def one_pin_for_each_action(files: Files) -> Iterator[str]:
    """An action has the same pin wherever it is used."""
    pins: dict[str, set[str]] = {}
    for text in files.texts.values():
        for name, pin in re.findall(r"uses: ([\w./-]+)@(.*)", text):
            pins.setdefault(name, set()).add(pin)
    yield from (f"{name}: {len(used)} pins" for name, used in pins.items() if len(used) > 1)


def inputs_match(files: Files) -> Iterator[str]:
    """A call of a local workflow or action passes the inputs that it declares."""
    for path, document in files.documents.items():
        for part in [*jobs(document).values(), *steps(document)]:
            uses = part.get("uses", "")
            if uses.startswith(LOCAL) and local(uses) in files.texts:
                declared = inputs(files.documents[local(uses)])
                yield from (f"{path}: {uses}: {text}" for text in _wrong_inputs(part, declared))


def _wrong_inputs(part: Mapping[str, Any], declared: Mapping[str, Any]) -> Iterator[str]:
    passed = set(part.get("with", {}))
    for name in sorted(passed - set(declared)):
        yield f"no input {name}"
    for name, about in declared.items():
        if about.get("required") and name not in passed:
            yield f"input {name} is missing"


def inputs(document: Mapping[str, Any]) -> dict[str, Any]:
    """Inputs of a callable workflow, or of an action."""
    if "runs" in document:
        return document.get("inputs", {})
    call = document["on"].get("workflow_call")
    return (call or {}).get("inputs", {}) if "workflow_call" in document["on"] else {}


# Checks of the commands: nox sessions, their options, the variables that they read.


INSTALL = (
    'python -m pip install --require-hashes --requirement "$GITHUB_ACTION_PATH/requirements.txt"'
)
CALLED = 'sh "$GITHUB_ACTION_PATH/torchwheel.sh"'
"""Gives the workflows of another project, which call these, their sessions."""
NIGHTLY = ".github/workflows/nightly.yml"
# What the tests need beside Python.
SYSTEM = (
    "sudo apt-get update",
    "sudo apt-get install --yes strace",
    "sudo apt-get install --yes bubblewrap mmdebstrap redis-server strace uidmap",
)
# A line of .ci/run may have options: the same text is run on laptops.
_LOCAL = frozenset((ROOT / ".ci/run").read_text().splitlines())
_SET_BY_GITHUB = ("GITHUB_OUTPUT", "GITHUB_ACTION_PATH")
_VARIABLE = re.compile(r"\$\{?(\w+)\}?")


def every_run_is_a_nox_session(files: Files) -> Iterator[str]:
    """Each run is one nox call with options that exist, and without expressions of GitHub."""
    known = sessions()
    for path, document in files.documents.items():
        for step in steps(document):
            run = step.get("run")
            if run is None or (run in (INSTALL, CALLED) and path in files.actions):
                continue
            if run in SYSTEM and path == NIGHTLY:
                continue
            if "${{" in run:
                yield f"{path}: an expression in a run: {run!r}"
            elif "\n" in run.strip() or re.search(r"[;|&<>`]|\$\(", run):
                yield f"{path}: more than one call of nox: {run!r}"
            else:
                yield from (f"{path}: {text}: {run!r}" for text in _wrong(run, known))


def releases_install_by_hash(files: Files) -> Iterator[str]:
    """A session of a release installs only what a lock has the hash of; CI's tests may be newer."""
    known = sessions()
    for path, document in files.workflows.items():
        for step in steps(document):
            words = shlex.split(step.get("run", ""))
            session = known.get(words[2]) if words[:2] == ["nox", "-s"] else None
            if session and session.by_name and path not in _NO_RELEASE:
                yield f"{path}: session {session.name} installs packages without their hashes"


_NO_RELEASE = (".github/workflows/ci.yml", NIGHTLY)


def _wrong(run: str, known: Mapping[str, Session]) -> Iterator[str]:
    words = shlex.split(run)
    if words[:2] != ["nox", "-s"] or len(words) < 3:
        yield "not a nox session"
        return
    name, rest = words[2], words[3:]
    session = known.get(name)
    if session is None:
        yield f"no session {name} in noxfile.py"
    elif rest and rest[0] != "--":
        yield "expected -- after the session"
    elif session.command:
        yield from _parsed([session.command, *rest[1:]])
    elif any(word.startswith("-") for word in rest[1:]) and run not in _LOCAL:
        yield f"session {name} takes no options"


def _parsed(call: list[str]) -> Iterator[str]:
    output = io.StringIO()
    try:
        with contextlib.redirect_stderr(output), contextlib.redirect_stdout(output):
            # A variable may hold any text that does not look like an option.
            parser().parse_args([_VARIABLE.sub("x", word) for word in call])
    except SystemExit:
        yield output.getvalue().strip().splitlines()[-1]


def every_variable_is_set(files: Files) -> Iterator[str]:
    """A run reads only variables that its step sets, and the step sets none that is not read."""
    for path, document in files.documents.items():
        for step in steps(document):
            declared = set(step.get("env", {}))
            read = set(_VARIABLE.findall(step.get("run", "")))
            for name in sorted(read - declared - set(_SET_BY_GITHUB)):
                yield f"{path}: ${name} is not in the step's env"
            for name in sorted(declared - read):
                if not name.startswith("SCCACHE_") and name not in {
                    "GH_TOKEN",
                    "TORCHWHEEL_IMAGES",
                }:
                    yield f"{path}: {name} is in a step's env and not read"


def no_failure_is_ignored(files: Files) -> Iterator[str]:
    """A job or step runs only if all before it succeeded."""
    for path, document in files.workflows.items():
        for part in [*jobs(document).values(), *steps(document)]:
            if part.get("continue-on-error"):
                yield f"{path}: continue-on-error"
            if re.search(r"\b(always|failure|cancelled)\s*\(", _if(part)):
                yield f"{path}: if: {_if(part)}"


HOSTED = {"ubuntu-24.04", "ubuntu-24.04-arm"}


def pull_requests_reach_hosted_machines(files: Files) -> Iterator[str]:
    """Whatever labels a pull request writes into its matrix, and those of other runs are heeded."""
    for path, document in files.workflows.items():
        for name, job in jobs(document).items():
            for labels in (["self-hosted"], ["ubuntu-24.04", "self-hosted"], ["ubuntu-24.04-arm"]):
                # `uses` calls a workflow, whose jobs are looked at in its own file.
                asked = job.get("runs-on", "ubuntu-24.04")
                key = re.search(r"matrix\.(\w+)", str(asked))
                matrix = {key[1]: labels} if key else {}
                for event in ("pull_request", "push"):
                    given = fill(asked, {"github": {"event_name": event}, "matrix": matrix})
                    found = {given} if isinstance(given, str) else set(given)
                    if event == "push" and key and given != labels:
                        yield f"{path}: {name}: {event}: runs on {given}, not on {labels}"
                    if event != "push" and not found <= HOSTED:
                        yield f"{path}: {name}: {event}: runs on {given}"


def _if(part: Mapping[str, Any]) -> str:
    return str(part.get("if", ""))
