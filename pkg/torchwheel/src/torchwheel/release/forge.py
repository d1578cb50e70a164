"""What a release asks of the forge, through its command line `gh`."""

import dataclasses
from collections.abc import Sequence
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
    """A file of a release, as the forge lists it."""

    name: str
    state: str
    digest: str | None = None

    @property
    def sha256(self) -> str:
        """Hex digest; empty if the forge does not know it."""
        return (self.digest or "").removeprefix("sha256:")

    @property
    def complete(self) -> bool:
        """Whether all of it was received."""
        return self.state == "uploaded"


@dataclasses.dataclass(frozen=True)
class ForgeRelease:
    """A release as the forge lists it; only those who may write see a draft."""

    id: int
    tag_name: str
    draft: bool
    prerelease: bool


@dataclasses.dataclass(frozen=True)
class WorkflowRun:
    """A run of a workflow, as gh lists it. It has no conclusion until it is finished."""

    databaseId: int  # noqa: N815 - the forge's name
    displayTitle: str  # noqa: N815
    conclusion: str | None


def releases() -> tuple[ForgeRelease, ...]:
    """All releases, drafts included."""
    return _list(f"{_RELEASES}?per_page=100", ForgeRelease)


def assets(release: ForgeRelease) -> tuple[Asset, ...]:
    """The files of a release."""
    return _list(f"{_RELEASES}/{release.id}/assets?per_page=100", Asset)


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
    return parse_json(text, tuple[WorkflowRun, ...], "gh run list", do=_DO, others=True)


def gh(*arguments: str) -> str:
    """Run gh; returns its output."""
    result = run(("gh", *arguments), timeout=_SECONDS)
    result.require(f"gh {' '.join(arguments[:2])}")
    return result.output


def _list(address: str, kind: type[T]) -> tuple[T, ...]:
    """The entries of all pages of a list."""
    text = gh("api", "--paginate", "--slurp", address)
    pages = parse_json(text, tuple[tuple[kind, ...], ...], "gh api", do=_DO, others=True)  # type: ignore[valid-type]
    return tuple(entry for page in pages for entry in page)


def _yes(value: bool) -> str:
    return "true" if value else "false"
