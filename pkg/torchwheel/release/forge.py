"""What a release asks of the forge, through its command line `gh`."""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from torchwheel_runtime.json_files import parse_json
from torchwheel_runtime.process import run

_RELEASES = "repos/{owner}/{repo}/releases"
_DO = "update gh, or run again"
_SECONDS = 3600
"""Of one call of gh: it waits as long as a byte comes."""

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Asset:
    """A file of a release.

    Attributes:
        name: its name.
        sha256: hex digest; empty if the forge does not know it.
        complete: whether all of it was received.
    """

    name: str
    sha256: str
    complete: bool


@dataclasses.dataclass(frozen=True)
class ForgeRelease:
    """A release on the forge; only those who may write see a draft."""

    number: int
    tag: str
    draft: bool
    prerelease: bool


@dataclasses.dataclass(frozen=True)
class WorkflowRun:
    """A run of a workflow. `conclusion` is empty until it is finished."""

    number: int
    title: str
    conclusion: str


@dataclasses.dataclass(frozen=True)
class _ListedRelease:
    """A release in the forge's list."""

    id: int
    tag_name: str
    draft: bool
    prerelease: bool


@dataclasses.dataclass(frozen=True)
class _ListedAsset:
    """An asset in the forge's list."""

    name: str
    state: str
    digest: str | None = None


@dataclasses.dataclass(frozen=True)
class _ListedRun:
    """A run in gh's list."""

    databaseId: int  # noqa: N815 - the forge's name
    displayTitle: str  # noqa: N815
    conclusion: str | None


def releases() -> tuple[ForgeRelease, ...]:
    """All releases, drafts included."""
    return tuple(
        ForgeRelease(entry.id, entry.tag_name, entry.draft, entry.prerelease)
        for entry in _list(f"{_RELEASES}?per_page=100", _ListedRelease)
    )


def assets(release: ForgeRelease) -> tuple[Asset, ...]:
    """The files of a release."""
    return tuple(
        Asset(entry.name, (entry.digest or "").removeprefix("sha256:"), entry.state == "uploaded")
        for entry in _list(f"{_RELEASES}/{release.number}/assets?per_page=100", _ListedAsset)
    )


def create_draft(tag: str) -> None:
    """Make a draft for a tag that is there."""
    gh("release", "create", tag, "--draft", "--verify-tag", "--title", tag, "--notes-from-tag")


def upload(tag: str, files: Sequence[Path]) -> None:
    """Add files to a release; a name that it has already is an error."""
    gh("release", "upload", tag, *map(str, files))


def delete_asset(tag: str, name: str) -> None:
    """Take a file out of a release."""
    gh("release", "delete-asset", tag, name, "--yes")


def publish(tag: str, *, prerelease: bool, latest: bool) -> None:
    """Make a draft public."""
    kind = (f"--prerelease={_yes(prerelease)}", f"--latest={_yes(latest)}")
    gh("release", "edit", tag, "--verify-tag", "--draft=false", *kind)


def start_workflow(workflow: str, branch: str, reason: str) -> None:
    """Start a workflow that has an input `reason` and shows it in its run's title."""
    gh("workflow", "run", workflow, "--ref", branch, "--raw-field", f"reason={reason}")


def workflow_runs(workflow: str) -> tuple[WorkflowRun, ...]:
    """The latest runs that were started so."""
    fields = ("--json", "databaseId,displayTitle,conclusion", "--limit", "50")
    text = gh("run", "list", "--workflow", workflow, "--event", "workflow_dispatch", *fields)
    return tuple(
        WorkflowRun(entry.databaseId, entry.displayTitle, entry.conclusion or "")
        for entry in parse_json(text, tuple[_ListedRun, ...], "gh run list", do=_DO, others=True)
    )


def gh(*arguments: str) -> str:
    """Run gh; returns its output."""
    result = run(("gh", *arguments), timeout=_SECONDS)
    result.require(f"gh {' '.join(arguments[:2])}")
    return result.output


def _list(address: str, kind: type[T]) -> Iterator[T]:
    """The entries of all pages of a list."""
    text = gh("api", "--paginate", "--slurp", address)
    pages = parse_json(text, tuple[tuple[kind, ...], ...], "gh api", do=_DO, others=True)  # type: ignore[valid-type]
    return (entry for page in pages for entry in page)


def _yes(value: bool) -> str:
    return "true" if value else "false"
