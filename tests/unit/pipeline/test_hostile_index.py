"""An sdist is found on an index, which may lie, and taken by its hash; none of its code is run."""

import hashlib
import json
import os
import threading
from pathlib import Path

import pytest

from loopback import answering
from torchwheel.index import client
from torchwheel.index.client import files_offered, find_sdist
from torchwheel.matrix.forms import parse_source
from torchwheel.pipeline.sources import download_release
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
    return ("text/html", f'<a href="{href}">x</a> <a>no</a><a href="y">'.encode())


@pytest.fixture
def build(tmp_path, monkeypatch):
    """Builds from an index of answers by path; a text is the place that it redirects to."""
    answers = {}

    def answer(path):
        found = answers.get(path)
        if isinstance(found, str):
            return 302, {"Location": found}, b""
        kind, body = found or ("text/plain", b"")
        return 200 if found else 404, {"Content-Type": kind}, body

    def run(changed, index="{}/simple"):
        answers.clear()
        answers.update({"/f": SDIST, f"/{FILE}": SDIST, **changed})
        monkeypatch.setenv("PIP_INDEX_URL", index.format(address))
        return find_source("conv==1.0", tmp_path / "cache", Quiet())

    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    (tmp_path / FILE).write_bytes(DATA)
    with answering(answer) as address:
        run.here, run.address = tmp_path, address
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
MISMATCH = f"hash mismatch: {FILE}: expected sha256 {'0' * 64} by {{}}, found "
NO_SDIST = "conv==1.0: expected an sdist on http"
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
        (lambda _: {PAGE: document(hashes={"sha256": "0" * 64})}, MISMATCH.format("the index")),
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
        (lambda _: {PAGE: document(filename="conv-1.0-py3-none-any.whl")}, NO_SDIST),
        (lambda _: {PAGE: ("text/html", b"<![>")}, "/simple/conv/: expected HTML, found "),
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


def test_of_all_files_of_a_project_the_sdist_of_the_release_is_taken(build):
    names = ("my_conv-1.0.tar.gz", "my_conv-1.5.2.zip", "my_conv-1.5.2.tar.gz", "x-1.5.2.tar.gz")
    files = [
        {"filename": name, "url": f"../../f/{name}", "hashes": {"sha256": DIGEST}, "size": 3}
        for name in ("my_conv-1.5.2-py3-none-any.whl", *names)
    ]
    page = {"meta": {"api-version": "1.0"}, "name": "My_Conv", "files": files}
    build({PAGE: document(), "/simple/my-conv/": (JSON, json.dumps(page).encode())})
    found = find_sdist("My.Conv", "1.5.2", {"PIP_INDEX_URL": f"{build.address}/simple/"})
    url = f"{build.address}/f/my_conv-1.5.2.tar.gz"
    assert (found.name, found.url, found.sha256) == ("my_conv-1.5.2.tar.gz", url, DIGEST)


def test_another_file_than_the_pinned_one_is_not_taken(build):
    build({PAGE: document()})
    with pytest.raises(TorchwheelError) as raised:
        download_release(parse_source("conv==1.0"), "0" * 64, build.here / "pinned", Quiet())
    assert str(raised.value).startswith(MISMATCH.format("project.sha256"))
    assert [path for path in (build.here / "pinned").rglob("*") if path.is_file()] == []


def test_the_files_of_every_index_are_found_and_one_without_the_project_has_none(build):
    build({PAGE: document()})
    for name in ("here/conv", "empty"):
        (build.here / name).mkdir(parents=True)
    page = f'<a href="conv-2.0.tar.gz#sha256={"0a" * 32}">x</a>'
    (build.here / "here/conv/index.html").write_text(page)
    folders = ((build.here / name).as_uri() for name in ("here", "empty", "no"))
    extra = " ".join([f"{build.address}/other", *folders])
    environ = {"PIP_INDEX_URL": f"{build.address}/simple", "PIP_EXTRA_INDEX_URL": extra}
    found = [(file.name, file.sha256) for file in files_offered("Conv", environ)]
    assert found == [(FILE, DIGEST), ("conv-2.0.tar.gz", "0a" * 32)]
    environ["PIP_EXTRA_INDEX_URL"] = "http://127.0.0.1:1/"
    with pytest.raises(TorchwheelError, match=r"^http://127.0.0.1:1/conv/: expected an answer, "):
        files_offered("conv", environ)


ODD_ADDRESSES = (
    *("http://[::1", "http://[::1]:x/", "http://localhost:99999/"),
    *("http://a..b/", "http://\udcff/"),
    *("file:///tmp/%00/", "file:///tmp/\0/", "https://ex\u2100mple.com/", "http://", "data:,x", ""),
)


@pytest.mark.parametrize("address", ODD_ADDRESSES)
def test_an_odd_address_is_one_line_and_a_link_to_it_hides_no_other(address, tmp_path):
    with pytest.raises(TorchwheelError) as caught:
        find_sdist("x", "1.0", {"PIP_INDEX_URL": address or "x"})
    assert str(caught.value).isprintable()
    page = tmp_path / "x" / "index.html"
    page.parent.mkdir()
    page.write_text(f'<a href="{address}">x</a><a href="x-1.0.tar.gz">x</a>', errors="replace")
    assert find_sdist("x", "1.0", {"PIP_INDEX_URL": tmp_path.as_uri()}).name == "x-1.0.tar.gz"
