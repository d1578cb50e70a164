"""Reads `yanked.yaml`: what was published and is not offered to everybody any more."""

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from torchwheel.index.catalogue import CatalogueWheel
from torchwheel.matrix.document import Document, Fault, kind_of, read_document
from torchwheel.text_files import read_text
from torchwheel_runtime.errors import UsageError
from torchwheel_runtime.text import KeyPath, join_names, nearest, quote

SCHEMA = 1
State = Literal["active", "archived", "deprecated", "quarantined"]
"""The states of a project in PEP 792. Of a quarantined one no file is listed."""

_SECTIONS = ("yanked", "removed", "projects")
_RELEASE = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([A-Za-z0-9.!+_-]+)")
_NAMES = 'the file name of a wheel or e.g. "demo==1.0.1"'


@dataclasses.dataclass(frozen=True)
class Withdrawal:
    """A file by its name, or all files of a version, and why they were withdrawn.

    Attributes:
        names: a file name, or `project==version`. As in a requirement, a version without a local
            part means every local version of it.
        reason: what an installer prints.
        line: of `yanked.yaml`.
    """

    names: str
    reason: str
    line: int = 0

    def matches(self, wheels: Sequence[CatalogueWheel]) -> list[str]:
        """The names of the files that it means."""
        release = _RELEASE.fullmatch(self.names)
        if release is None:
            return [wheel.file for wheel in wheels if wheel.file == self.names]
        project, versions = canonicalize_name(release[1]), SpecifierSet(f"=={release[2]}")
        return [
            wheel.file
            for wheel in wheels
            if wheel.project == project and versions.contains(wheel.version, prereleases=True)
        ]


@dataclasses.dataclass(frozen=True)
class ProjectStatus:
    """The state of a project, and why it is in it."""

    state: State
    reason: str
    line: int = 0


@dataclasses.dataclass(frozen=True)
class Withdrawals:
    """The contents of `yanked.yaml`.

    Attributes:
        yanked: what is installed by its exact version alone (PEP 592).
        removed: what is not listed, because the store does not have it any more.
        projects: the states of projects that are not active, by normalised name (PEP 792).
        where: the file, for messages.
    """

    yanked: tuple[Withdrawal, ...] = ()
    removed: tuple[Withdrawal, ...] = ()
    projects: Mapping[str, ProjectStatus] = dataclasses.field(default_factory=dict)
    where: str = ""

    def yanked_files(self, wheels: Sequence[CatalogueWheel]) -> dict[str, str]:
        """Why files were yanked, by their names."""
        return {
            file: entry.reason for entry in reversed(self.yanked) for file in entry.matches(wheels)
        }

    def removed_files(self, wheels: Sequence[CatalogueWheel]) -> set[str]:
        """The names of the files that are not listed."""
        return {file for entry in self.removed for file in entry.matches(wheels)}

    def gone(self, wheels: Sequence[CatalogueWheel]) -> list[str]:
        """A line for each removal of what no catalogue has: its release was deleted whole."""
        return [
            f"{self.where}:{entry.line}: removed: {quote(entry.names)} is in no release; remove "
            "the line if it is not a misspelling"
            for entry in self.removed
            if not entry.matches(wheels)
        ]

    def check(self, wheels: Sequence[CatalogueWheel]) -> None:
        """Raise, with a line for each, if something was yanked that was never published."""
        published = {wheel.file: None for wheel in wheels}
        published |= {f"{wheel.project}=={wheel.version}": None for wheel in wheels}
        projects = {wheel.project for wheel in wheels}
        lines = [
            f"{self.where}:{entry.line}: yanked: expected a published wheel, found "
            f"{quote(entry.names)}; {nearest(entry.names, published)}; if its release is gone, "
            "move the line to `removed`"
            for entry in self.yanked
            if not entry.matches(wheels)
        ]
        lines += [
            f"{self.where}:{own.line}: projects: expected a published project, found "
            f"{quote(name)}; {nearest(name, sorted(projects))}"
            for name, own in self.projects.items()
            if name not in projects
        ]
        if lines:
            raise UsageError(*lines)


def read_withdrawals(path: Path) -> Withdrawals:
    """Read and check `yanked.yaml`.

    Raises:
        UsageError: one line for each fault: file, line, place, what was expected and found.
    """
    text = read_text(path, "run where it is, or name it with --yanked")
    return parse_withdrawals(text, str(path))


def parse_withdrawals(text: str, where: str) -> Withdrawals:
    """The withdrawals in a text of YAML; see `read_withdrawals`."""
    document = read_document(text, where)
    if faults := list(_faults(document.data)):
        raise document.error(where, faults)
    data = document.data
    return Withdrawals(
        yanked=_withdrawals(document, "yanked"),
        removed=_withdrawals(document, "removed"),
        projects={
            canonicalize_name(name): ProjectStatus(
                own["status"], own["reason"], document.line(("projects", name))
            )
            for name, own in data.get("projects", {}).items()
        },
        where=where,
    )


def _withdrawals(document: Document, section: str) -> tuple[Withdrawal, ...]:
    return tuple(
        Withdrawal(names, reason, document.line((section, names)))
        for names, reason in document.data.get(section, {}).items()
    )


def _faults(data: Any) -> Iterator[Fault]:  # noqa: ANN401 - YAML
    """Each place that is not as expected."""
    if not isinstance(data, dict):
        yield _fault((), "a mapping", data)
        return
    if type(data.get("schema")) is not int or data["schema"] != SCHEMA:
        yield _fault(("schema",), str(SCHEMA), data.get("schema"))
    for key in data:
        if key not in ("schema", *_SECTIONS):
            yield _fault((key,), f"one of schema, {join_names(_SECTIONS)}", key)
    for section in _SECTIONS:
        entries = data.get(section, {})
        if not isinstance(entries, dict):
            yield _fault((section,), "a mapping", entries)
            continue
        for key, value in entries.items():
            path = (section, key)
            if section == "projects":
                yield from _project_faults(path, value)
                continue
            if not _is_withdrawal(key):
                yield _fault(path, _NAMES, key)
            if not _is_reason(value):
                yield _fault(path, "the reason on one line", value)


def _project_faults(path: KeyPath, value: object) -> Iterator[Fault]:
    if not isinstance(value, dict) or set(value) != {"status", "reason"}:
        yield _fault(path, "the keys status and reason", value)
        return
    if value["status"] not in get_args(State):
        yield _fault((*path, "status"), f"one of {join_names(get_args(State))}", value["status"])
    if not _is_reason(value["reason"]):
        yield _fault((*path, "reason"), "the reason on one line", value["reason"])


def _fault(path: KeyPath, expected: str, found: object) -> Fault:
    shown = quote(found) if isinstance(found, str) else kind_of(found)
    return path, f"expected {expected}, found {shown}"


def _is_withdrawal(text: str) -> bool:
    release = _RELEASE.fullmatch(text)
    if release is None:
        return text.endswith(".whl") and "/" not in text
    try:
        Version(release[2])
    except ValueError:  # InvalidVersion, or a number of too many digits
        return False
    return True


def _is_reason(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip()) and value.isprintable()
