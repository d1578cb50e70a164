"""What the forge on loopback holds: artifacts, releases, runs, tokens, and the faults to come."""

import dataclasses
import re
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rehearsal.workflow import Permissions

SIGNER = Path(__file__).parents[1] / "signing.py"


@dataclasses.dataclass(frozen=True)
class Token:
    """What a job's token says of the job."""

    permissions: Permissions = dataclasses.field(default_factory=dict)
    run: int = 0
    attempt: int = 0
    workflow: str = ""
    caller: str = ""
    ref: str = ""
    sha: str = ""
    event: str = ""


@dataclasses.dataclass
class RequestFault:
    """A fault of the next `count` requests whose method and path match `request`.

    `kind`: "500" answers with an error; "cut" breaks off while the body is sent; "lost" does all
    and breaks off before the answer; "flip" changes a byte of the answer, or of an upload to the
    package index; "hide" leaves an artifact out of a list, whose name ends the request.
    """

    kind: str
    request: str
    count: int = 1


@dataclasses.dataclass(frozen=True)
class Artifact:
    """What a job has uploaded."""

    id: int
    name: str
    run: int
    attempt: int
    file: Path
    sha256: str


@dataclasses.dataclass
class Release:
    """A release and its assets: name, and state and sha256."""

    id: int
    tag: str
    draft: bool
    prerelease: bool = False
    latest: bool = False
    assets: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)


class RefusedError(Exception):
    """The forge refuses a request."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclasses.dataclass
class Forge:
    """All that is stored. Only the handlers below change it, one at a time.

    Attributes:
        root: its folder.
        repository: "OWNER/NAME".
        tags: the tags that were pushed, with their commits.
        same_name: what an upload does where an earlier attempt has the name: "conflict" or "both".
            Both were seen on the forge.
        address: its own, which its certificates name.
        dispatch: starts a workflow: path, ref, inputs.
    """

    root: Path
    repository: str
    tags: dict[str, str]
    same_name: str = "conflict"
    address: str = ""
    dispatch: Callable[[str, str, Mapping[str, str]], None] = lambda *_: None
    artifacts: list[Artifact] = dataclasses.field(default_factory=list)
    releases: list[Release] = dataclasses.field(default_factory=list)
    runs: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    faults: list[RequestFault] = dataclasses.field(default_factory=list)
    tokens: dict[str, Token] = dataclasses.field(default_factory=dict)
    requests: list[str] = dataclasses.field(default_factory=list)
    lock: threading.RLock = dataclasses.field(default_factory=threading.RLock)
    seen: Callable[[str], None] = lambda _: None
    _next: int = 1

    def number(self) -> int:
        """A number that was not given before."""
        with self.lock:
            self._next += 1
            return self._next

    def issue(self, token: Token) -> str:
        """A new token for a job."""
        text = secrets.token_hex(16)
        self.tokens[text] = token
        return text

    @property
    def pages(self) -> Path:
        """The folder that Pages serves."""
        return self.root / "pages"

    def asset(self, release: Release, name: str) -> Path:
        """The file of an asset."""
        return self.root / "assets" / str(release.id) / name

    def published(self) -> Iterator[tuple[str, str, Path]]:
        """Tag, name and file of every asset that everybody sees."""
        for release in self.releases:
            if not release.draft:
                for name in sorted(release.assets):
                    yield release.tag, name, self.asset(release, name)

    def take_fault(self, request: str, kinds: Sequence[str]) -> str | None:
        """The fault of this request, if one waits for it."""
        with self.lock:
            for fault in self.faults:
                if fault.kind in kinds and fault.count and re.search(fault.request, request):
                    fault.count -= 1
                    return fault.kind
        return None
