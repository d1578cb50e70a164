"""An sdist is found on the index and taken by its hash; none of its code is run."""

import contextlib
import hashlib
import http.server
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopback import serving
from torchwheel.errors import TorchwheelError, UsageError
from torchwheel.fetch import Answer
from torchwheel.toolkit import project_page
from torchwheel.toolkit.project_page import OfferedFile
from torchwheel.toolkit.sdists import download_sdist, files_offered, find_sdist

DATA = b"the sdist"
DIGEST = hashlib.sha256(DATA).hexdigest()


@pytest.fixture
def served(tmp_path):
    """An index on loopback: its address, and the answers by path, which a test may change."""
    answers = {}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            kind, body = answers.get(self.path, ("text/plain", None))
            self.send_response(404 if body is None else 200)
            self.send_header("Content-Type", kind)
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, *_):
            pass

    with serving(Handler) as address:
        yield address, answers


def page(*files, name="conv"):
    return json.dumps({"meta": {"api-version": "1.0"}, "name": name, "files": files}).encode()


def entry(name, digest=DIGEST):
    return {"filename": name, "url": f"../../f/{name}", "hashes": {"sha256": digest}, "size": 3}


def facts(file):
    return file.name, file.url, file.sha256


def offered(url, digest):
    return OfferedFile("conv-1.0.tar.gz", {"url": url, "hashes": {"sha256": digest}}, url, "page")


JSON = "application/vnd.pypi.simple.v1+json"


def test_the_sdist_of_a_release_is_found_among_its_files(served):
    address, answers = served
    names = ("my_conv-1.0.tar.gz", "my_conv-1.5.2.zip", "my_conv-1.5.2.tar.gz", "x-1.5.2.tar.gz")
    wheel = "my_conv-1.5.2-py3-none-any.whl"
    answers["/simple/my-conv/"] = (JSON, page(entry(wheel), *map(entry, names), name="My_Conv"))
    found = find_sdist("My.Conv", "1.5.2", {"PIP_INDEX_URL": f"{address}/simple/"})
    url = f"{address}/f/my_conv-1.5.2.tar.gz"
    assert facts(found) == ("my_conv-1.5.2.tar.gz", url, DIGEST)


def test_an_older_index_has_pages_in_html(served):
    address, answers = served
    link = f'<a href="/f/conv-2.0.tar.gz#sha256={DIGEST}">x</a> <a>no</a><a href="y">'
    answers["/conv/"] = ("text/html", link.encode())
    found = find_sdist("conv", "2.0", {"PIP_INDEX_URL": address})
    assert facts(found) == ("conv-2.0.tar.gz", f"{address}/f/conv-2.0.tar.gz", DIGEST)


def test_a_release_without_an_sdist_is_one_line(served):
    address, answers = served
    answers["/conv/"] = (JSON, page(entry("conv-1.0-py3-none-any.whl")))
    with pytest.raises(UsageError, match=r"^conv==1\.0: expected an sdist on http.*, found none"):
        find_sdist("conv", "1.0", {"PIP_INDEX_URL": address})


def test_a_folder_of_find_links_precedes_the_index(tmp_path):
    (tmp_path / "conv-1.0.tar.gz").write_bytes(DATA)
    found = find_sdist("conv", "1.0", {"PIP_FIND_LINKS": f"/none {tmp_path}"})
    assert found.sha256 == DIGEST
    assert download_sdist(found, None, tmp_path / "to").read_bytes() == DATA


@pytest.mark.parametrize(
    ("said", "expected", "by"),
    [
        ("0" * 64, None, "the index"),
        (DIGEST, "0" * 64, "project.sha256"),
    ],
)
def test_another_file_is_not_taken(served, tmp_path, said, expected, by):
    address, answers = served
    answers["/f"] = ("application/gzip", DATA)
    file = offered(f"{address}/f", said)
    with pytest.raises(TorchwheelError, match=rf"^hash mismatch: conv-1\.0.* by {by}, found "):
        download_sdist(file, expected, tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_files_of_every_index_are_found_and_one_without_the_project_has_none(served, tmp_path):
    address, answers = served
    answers["/simple/x/"] = (JSON, page(entry("x-1.0.tar.gz"), name="x"))
    (tmp_path / "here" / "x").mkdir(parents=True)
    (tmp_path / "here" / "x" / "index.html").write_text(
        f'<a href="x-2.0.tar.gz#sha256={"0a" * 32}">x</a>'
    )
    (tmp_path / "empty").mkdir()
    extra = [f"{address}/other", *((tmp_path / name).as_uri() for name in ("here", "empty", "no"))]
    environ = {"PIP_INDEX_URL": f"{address}/simple", "PIP_EXTRA_INDEX_URL": " ".join(extra)}
    found = [(file.name, file.sha256) for file in files_offered("X", environ)]
    assert found == [("x-1.0.tar.gz", DIGEST), ("x-2.0.tar.gz", "0a" * 32)]


def test_an_index_that_cannot_be_read_is_one_line(tmp_path):
    environ = {"PIP_INDEX_URL": tmp_path.as_uri(), "PIP_EXTRA_INDEX_URL": "http://127.0.0.1:1/"}
    with pytest.raises(
        TorchwheelError, match=r"^http://127.0.0.1:1/x/: expected an answer, found "
    ):
        files_offered("x", environ)


def test_html_that_python_cannot_parse_is_one_line(served):
    address, answers = served
    answers["/simple/x/"] = ("text/html", b"<![>")
    line = rf"^{address}/simple/x/: expected HTML, found "
    with pytest.raises(TorchwheelError, match=line):
        find_sdist("x", "1.0", {"PIP_INDEX_URL": f"{address}/simple"})


@given(st.one_of(st.binary(max_size=200), st.text(max_size=200).map(str.encode)))
def test_any_page_is_read_or_refused(body):
    with contextlib.suppress(TorchwheelError):
        found = project_page._of_html(Answer("https://h.test/x/", "text/html", body))
        assert all(file.name is not None for file in found)
    with contextlib.suppress(TorchwheelError):
        project_page._of_json(Answer("https://h.test/x/", JSON, body), "x")


ODD_ADDRESSES = (
    *(
        "http://[::1",
        "http://[::1]:x/",
        "http://localhost:99999/",
        "http://a..b/",
        "http://\udcff/",
    ),
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
