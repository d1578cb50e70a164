"""The forge on loopback: artifacts, releases, Pages, attestations and runs, as it behaves.

A token says what its job may do; a request that needs more gets 403. Faults of the network and of
the server are put in the way of chosen requests.
"""

import contextlib
import hashlib
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit
from zipfile import ZipFile

from loopback import serving
from rehearsal.forge import SIGNER, Artifact, Forge, RefusedError, Release, Token
from rehearsal.workflow import allowed

# What each request does: method, pattern of the path, the permission that it needs.
_Handler = Callable[["Forge", Token, Mapping[str, str], bytes], Any]
_ROUTES: list[tuple[str, re.Pattern[str], tuple[tuple[str, str], ...], _Handler]] = []


def _route(method: str, path: str, *needs: tuple[str, str]) -> Callable[[_Handler], _Handler]:
    def add(handler: _Handler) -> _Handler:
        _ROUTES.append((method, re.compile(path), needs, handler))
        return handler

    return add


@_route("POST", "/artifacts")
def _upload_artifact(forge: Forge, token: Token, given: Mapping[str, str], body: bytes) -> Any:
    name = given["name"]
    same = [a for a in forge.artifacts if (a.run, a.name) == (token.run, name)]
    if given.get("overwrite") == "true":
        forge.artifacts = [a for a in forge.artifacts if a not in same]
    elif any(a.attempt == token.attempt or forge.same_name == "conflict" for a in same):
        raise RefusedError(409, "Conflict: an artifact with this name already exists on the run")
    number = forge.number()
    file = forge.root / "artifacts" / f"{number}.zip"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(body)
    digest = hashlib.sha256(body).hexdigest()
    forge.artifacts.append(Artifact(number, name, token.run, token.attempt, file, digest))
    return {"id": number}


@_route("GET", "/artifacts")
def _list_artifacts(forge: Forge, token: Token, given: Mapping[str, str], body: bytes) -> Any:
    newest = {a.name: a for a in sorted(forge.artifacts, key=lambda a: a.id) if a.run == token.run}
    return [
        {"id": a.id, "name": a.name, "sha256": a.sha256}
        for a in newest.values()
        if not forge.take_fault(f"GET /artifacts {a.name}", ["hide"])
    ]


@_route("GET", r"/artifacts/(?P<id>\d+)")
def _download_artifact(forge: Forge, token: Token, given: Mapping[str, str], body: bytes) -> Any:
    for artifact in forge.artifacts:
        if (artifact.id, artifact.run) == (int(given["id"]), token.run):
            return artifact.file.read_bytes()
    raise RefusedError(404, "no such artifact of this run")


@_route("POST", "/pages", ("pages", "write"), ("id-token", "write"))
def _deploy_pages(forge: Forge, token: Token, given: Mapping[str, str], body: bytes) -> Any:
    name = given["artifact_name"]
    found = [a for a in forge.artifacts if (a.run, a.name) == (token.run, name)]
    if len(found) != 1:
        kind = "Multiple" if found else "No"
        raise RefusedError(
            400,
            f'{kind} artifacts named "{name}" were unexpectedly found for this workflow run. '
            f"Artifact count is {len(found)}.",
        )
    with tempfile.TemporaryDirectory(dir=forge.root) as folder, ZipFile(found[0].file) as archive:
        new = Path(folder) / "new"
        archive.extractall(new)
        if forge.pages.exists():
            forge.pages.rename(Path(folder) / "old")
        new.rename(forge.pages)
    return {"page_url": "/pages/"}


@_route("POST", "/attestations", ("id-token", "write"), ("attestations", "write"))
def _attest(forge: Forge, token: Token, given: Mapping[str, str], body: bytes) -> Any:
    """One bundle over all subjects, signed as the job that asks."""
    with tempfile.TemporaryDirectory() as folder:
        sums, bundle = Path(folder) / "sums", Path(folder) / "bundle.json"
        sums.write_bytes(body)
        subprocess.run(
            [sys.executable, str(SIGNER), "--root", str(forge.root / "trust"), "sign"]
            + ["--repository", f"{forge.address}/{forge.repository}", "--commit", token.sha]
            + ["--ref", token.ref, "--workflow", token.workflow, "--caller", token.caller]
            + ["--trigger", token.event, "--run", f"{token.run}/attempts/{token.attempt}"]
            + ["--checksums", str(sums), "--bundle", str(bundle)],
            check=True,
        )
        return json.loads(bundle.read_text())


@_route("GET", "/releases", ("contents", "read"))
def _list_releases(forge: Forge, token: Token, given: Mapping[str, str], body: bytes) -> Any:
    sees_drafts = allowed(token.permissions, "contents", "write")
    return [
        {"id": r.id, "tag_name": r.tag, "draft": r.draft, "prerelease": r.prerelease}
        for r in reversed(forge.releases)
        if sees_drafts or not r.draft
    ]


@_route("GET", r"/releases/(?P<id>\d+)/assets", ("contents", "read"))
def _list_assets(forge: Forge, token: Token, given: Mapping[str, str], body: bytes) -> Any:
    return [{"name": n, **about} for n, about in _release(forge, given).assets.items()]


@_route("POST", "/releases", ("contents", "write"))
def _create_release(forge: Forge, token: Token, given: Mapping[str, str], body: bytes) -> Any:
    asked = json.loads(body)
    tag = asked["tag"]
    if asked["verify_tag"] and tag not in forge.tags:
        raise RefusedError(
            422, f"tag {tag} doesn't exist in the repo, aborting due to --verify-tag"
        )
    if not asked["draft"] and any(r.tag == tag and not r.draft for r in forge.releases):
        raise RefusedError(422, "Validation Failed: Release.tag_name already exists")
    release = Release(forge.number(), tag, asked["draft"])
    forge.releases.append(release)
    return {"id": release.id}


@_route("PATCH", r"/releases/(?P<id>\d+)", ("contents", "write"))
def _edit_release(forge: Forge, token: Token, given: Mapping[str, str], body: bytes) -> Any:
    release, asked = _release(forge, given), json.loads(body)
    others = [r for r in forge.releases if r.tag == release.tag and r is not release]
    if not asked["draft"] and any(not other.draft for other in others):
        raise RefusedError(422, "Validation Failed: Release.tag_name already exists")
    if asked["latest"]:
        for other in forge.releases:
            other.latest = False
    release.draft, release.prerelease = asked["draft"], asked["prerelease"]
    release.latest = asked["latest"] and not asked["prerelease"]
    return {}


@_route("DELETE", r"/releases/(?P<id>\d+)", ("contents", "write"))
def _delete_release(forge: Forge, token: Token, given: Mapping[str, str], body: bytes) -> Any:
    forge.releases.remove(_release(forge, given))
    return {}


@_route("PUT", r"/releases/(?P<id>\d+)/assets/(?P<name>[^/]+)", ("contents", "write"))
def _upload_asset(forge: Forge, token: Token, given: Mapping[str, str], body: bytes) -> Any:
    release, name = _release(forge, given), unquote(given["name"])
    if name in release.assets:
        raise RefusedError(422, f"asset under the same name already exists: {name}")
    file = forge.asset(release, name)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(body)
    cut = given.get("cut") == "yes"
    # What was cut off is an asset too, without a digest, until somebody deletes it.
    digest = None if cut else f"sha256:{hashlib.sha256(body).hexdigest()}"
    release.assets[name] = {"state": "starter" if cut else "uploaded", "digest": digest}
    return {}


@_route("DELETE", r"/releases/(?P<id>\d+)/assets/(?P<name>[^/]+)", ("contents", "write"))
def _delete_asset(forge: Forge, token: Token, given: Mapping[str, str], body: bytes) -> Any:
    release, name = _release(forge, given), unquote(given["name"])
    if release.assets.pop(name, None) is None:
        raise RefusedError(404, f"asset {name} not found")
    forge.asset(release, name).unlink()
    return {}


@_route("GET", r"/[^/]+/[^/]+/releases/download/(?P<tag>[^/]+)/(?P<name>[^/]+)")
def _download(forge: Forge, token: Token, given: Mapping[str, str], body: bytes) -> Any:
    for tag, name, file in forge.published():
        if (tag, name) == (given["tag"], unquote(given["name"])):
            return file.read_bytes()
    raise RefusedError(404, "Not Found")


@_route("POST", "/dispatches", ("actions", "write"))
def _dispatch(forge: Forge, token: Token, given: Mapping[str, str], body: bytes) -> Any:
    asked = json.loads(body)
    forge.dispatch(asked["workflow"], asked["ref"], asked["inputs"])
    return {}


@_route("GET", "/runs", ("actions", "read"))
def _list_runs(forge: Forge, token: Token, given: Mapping[str, str], body: bytes) -> Any:
    return [run for run in reversed(forge.runs) if run["workflow"] == given["workflow"]]


@_route("GET", r"/pages/(?P<path>.*)")
def _page(forge: Forge, token: Token, given: Mapping[str, str], body: bytes) -> Any:
    file = (forge.pages / unquote(given["path"])).resolve()
    file = file / "index.html" if file.is_dir() else file
    if not file.is_relative_to(forge.pages.resolve()) or not file.is_file():
        raise RefusedError(404, "Not Found")
    return file.read_bytes()


def _release(forge: Forge, given: Mapping[str, str]) -> Release:
    for release in forge.releases:
        if release.id == int(given["id"]):
            return release
    raise RefusedError(404, "Not Found")


class _Server(BaseHTTPRequestHandler):
    """Finds the route of a request, and the faults that wait for it."""

    forge: Forge
    protocol_version = "HTTP/1.1"

    def _serve(self) -> None:
        address = urlsplit(self.path)
        request = f"{self.command} {unquote(address.path)}"
        length = int(self.headers.get("Content-Length", 0))
        fault = self.forge.take_fault(request, ("500", "cut", "lost", "flip"))
        body = self.rfile.read(length // 2 if fault == "cut" else length)
        self.forge.requests.append(request)
        self.forge.seen(request)
        given = dict(parse_qsl(address.query))
        if fault == "500":
            return self._answer(500, b'{"message": "Server Error"}')
        if fault == "cut" and self.command == "PUT":
            given["cut"] = "yes"
        elif fault == "cut":
            return self._break()
        status, answer = self._handle(address.path, given, body)
        if fault in ("cut", "lost"):
            return self._break()
        if fault == "flip" and answer:
            answer = answer[:-1] + bytes([answer[-1] ^ 1])
        return self._answer(status, answer)

    def _handle(self, path: str, given: dict[str, str], body: bytes) -> tuple[int, bytes]:
        name = self.headers.get("Authorization", "").removeprefix("Bearer ")
        token = self.forge.tokens.get(name, Token())
        for method, pattern, needs, handler in _ROUTES:
            match = pattern.fullmatch(path)
            if method != self.command or match is None:
                continue
            lacking = [f"{n}: {v}" for n, v in needs if not allowed(token.permissions, n, v)]
            if lacking:
                return 403, _message(f"Resource not accessible by integration: {lacking[0]}")
            try:
                with self.forge.lock:
                    value = handler(self.forge, token, given | match.groupdict(), body)
            except RefusedError as error:
                return error.status, _message(str(error))
            return 200, value if isinstance(value, bytes) else json.dumps(value).encode()
        return 404, _message(f"no such address: {path}")

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        kind = "text/html" if self.path.endswith(("/", ".html")) else "application/octet-stream"
        self.send_header("Content-Type", kind)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _break(self) -> None:
        self.close_connection = True
        self.connection.close()

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815 - http.server's names


def _message(text: str) -> bytes:
    return json.dumps({"message": text}).encode()


@contextlib.contextmanager
def serving_forge(forge: Forge) -> Iterator[None]:
    """Serve on loopback, at the address that the forge then knows."""
    with serving(type("Handler", (_Server,), {"forge": forge})) as forge.address:
        yield
