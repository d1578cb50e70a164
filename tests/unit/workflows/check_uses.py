"""Checks of `uses`: actions are pinned, local actions and workflows get their inputs."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from workflow_files import LOCAL, Files, jobs, local, steps

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
                yield from (f"{path}: {uses}: {text}" for text in _wrong(part, declared))


def _wrong(part: Mapping[str, Any], declared: Mapping[str, Any]) -> Iterator[str]:
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
