"""`torchwheel build NAME==VERSION` from an index that lies: what is taken and what is said."""

import hashlib
import http.server
import json
import os
import threading
from pathlib import Path

import pytest

from loopback import serving
from torchwheel.index import client
from torchwheel.sdist.request import find_source
from torchwheel_runtime.console import Quiet
from torchwheel_runtime.errors import TorchwheelError

DATA = b"the sdist"
DIGEST = hashlib.sha256(DATA).hexdigest()
FILE = "conv-1.0.tar.gz"
SDIST = ("application/gzip", DATA)
JSON = "application/vnd.pypi.simple.v1+json"


def document(url="/f", **entry):
    said = {"filename": FILE, "url": url, "hashes": {"sha256": DIGEST}, **entry}
    return (JSON, json.dumps({"name": "conv", "files": [said]}).encode())


def anchor(href):
    return ("text/html", f'<a href="{href}">x</a>'.encode())


@pytest.fixture
def build(tmp_path, monkeypatch):
    """Builds from an index of answers by path; a text is the place that it redirects to."""
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        answers: dict = {}

        def do_GET(self):
            asked.append(self.path)
            answer = self.answers.get(self.path)
            if isinstance(answer, str):
                self.send_response(302)
                self.send_header("Location", answer)
            else:
                self.send_response(200 if answer else 404)
                self.send_header("Content-Type", answer[0] if answer else "text/plain")
            self.end_headers()
            self.wfile.write(answer[1] if isinstance(answer, tuple) else b"")

        def log_message(self, *_):
            pass

    def run(answers, index="{}/simple"):
        Handler.answers = {"/f": SDIST, f"/{FILE}": SDIST, **answers}
        monkeypatch.setenv("PIP_INDEX_URL", index.format(address))
        return find_source("conv==1.0", tmp_path / "cache", Quiet())

    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    (tmp_path / FILE).write_bytes(DATA)
    with serving(Handler) as address:
        run.here, run.asked = tmp_path, asked
        yield run


def refused(build, *arguments, **options):
    """The line of an error that came in time; nothing was taken."""
    lines, errors = [], []

    def call():
        try:
            lines.append(build(*arguments, **options))
        except TorchwheelError as error:
            errors.append(str(error))

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive(), "it still waits"
    assert lines == []
    (line,) = errors
    assert "\n" not in line
    cache = build.here / "cache"
    assert [path for path in cache.rglob("*") if path.is_file()] == []
    return line


PAGE = "/simple/conv/"
LEADS = "expected links to http or https, found "
ADDRESS = "expected https://, file:// or, on loopback, http://"


def test_what_is_right_is_taken(build):
    assert build({PAGE: document()}).read_bytes() == DATA
    assert build({PAGE: anchor(f"/{FILE}#sha256={DIGEST}")}).read_bytes() == DATA
    moved = {PAGE: document("/old"), "/old": "/f"}
    assert build(moved).read_bytes() == DATA


@pytest.mark.parametrize(
    ("answers", "says"),
    [
        (lambda here: {PAGE: document(f"{here}")}, LEADS),
        (lambda here: {PAGE: document(f"{here}", hashes={})}, "expected a sha256, found none"),
        (lambda here: {PAGE: anchor(f"{here}#sha256={DIGEST}")}, LEADS),
        (lambda here: {PAGE: anchor(f"{here}")}, "expected a sha256, found none"),
        (lambda _: {PAGE: document(hashes={})}, "expected a sha256, found none"),
        (lambda _: {PAGE: document(hashes={"md5": "0" * 32})}, "expected a sha256, found none"),
        (lambda _: {PAGE: document(hashes={"sha256": ""})}, "hashes.sha256: expected 64 hex"),
        (lambda _: {PAGE: document(hashes={"sha256": "0" * 64})}, "hash mismatch: conv-1.0.tar.gz"),
        (lambda _: {PAGE: anchor(f"/{FILE}#md5=0")}, "expected a sha256, found none"),
        (lambda _: {PAGE: "ftp://127.0.0.1:9/conv/"}, ADDRESS),
        (lambda here: {PAGE: f"{here}"}, "found status 302"),
        (lambda _: {PAGE: "http://192.0.2.1/conv/"}, ADDRESS),
        (lambda _: {PAGE: PAGE}, "found status 302"),
        (lambda _: {PAGE: document("ftp://127.0.0.1:9/f")}, ADDRESS),
        (lambda _: {PAGE: document("http://192.0.2.1/f")}, ADDRESS),
        (lambda _: {PAGE: document("http://user:secret@127.0.0.1/f")}, "http://****@127.0.0.1/f"),
        (lambda _: {PAGE: document(), "/f": "ftp://127.0.0.1:9/f"}, ADDRESS),
        (lambda here: {PAGE: document(), "/f": f"{here}"}, "found status 302"),
        (lambda _: {PAGE: document(), "/f": "http://user:secret@127.0.0.1/f"}, "****@127.0.0.1/f"),
        (lambda _: {PAGE: document(), "/f": ("x", b"x" * 100)}, "expected at most 0 KiB"),
        (lambda _: {PAGE: document("data:,the%20sdist")}, ADDRESS),
    ],
)
def test_a_lie_is_one_line(build, monkeypatch, answers, says):
    monkeypatch.setattr(client, "SDIST_BYTES", 50)
    line = refused(build, answers((build.here / FILE).as_uri()))
    assert says in line
    assert "secret" not in line


@pytest.mark.parametrize("name", ["index.html", FILE])
def test_a_pipe_in_an_index_is_not_waited_for(build, name):
    folder = build.here / "index" / "conv"
    folder.mkdir(parents=True)
    (folder / "index.html").write_text(f'<a href="{FILE}#sha256={DIGEST}">x</a>')
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    says = "found none" if name == "index.html" else "not a file"
    assert says in refused(build, {}, index=(build.here / "index").as_uri())


def test_a_pipe_in_a_folder_of_find_links_is_not_waited_for(build, monkeypatch):
    (build.here / "links").mkdir()
    os.mkfifo(build.here / "links" / FILE)
    monkeypatch.setenv("PIP_FIND_LINKS", str(build.here / "links"))
    assert "found none" in refused(build, {})


@pytest.mark.parametrize(
    "index",
    [
        "http://user:secret@127.0.0.1:1/simple",
        "https://user:secret@127.0.0.1:1/simple",
        "https://secret@127.0.0.1:1/simple",
        "https://user:se/secret@127.0.0.1/simple",
        "https://user:a@secret@127.0.0.1/simple",
        "ftp://user:secret@127.0.0.1/simple",
    ],
)
def test_the_password_of_an_index_is_not_printed(build, index):
    line = refused(build, {}, index=index)
    assert "without a user" in line
    assert "secret" not in line


def test_an_index_without_encryption_is_on_loopback(build):
    assert ADDRESS in refused(build, {}, index="http://192.0.2.1/simple")


def test_an_index_in_a_folder_leads_to_its_files(build):
    folder = build.here / "index" / "conv"
    folder.mkdir(parents=True)
    (folder / "index.html").write_text(f'<a href="../../{FILE}#sha256={DIGEST}">x</a>')
    taken = build({}, index=(build.here / "index").as_uri())
    assert (taken.read_bytes(), Path(taken).name) == (DATA, FILE)
