"""The page of a project: our JSON, others' JSON, HTML; and what is hostile."""

import random

import pytest
from install_cases import DIGEST, Pages, document, entry, note

import jsonmutator
import wheelmaker
from torchwheel.index.client import find_files
from torchwheel.index.needs import needs_of_claims
from torchwheel.install.page import find_page
from torchwheel_runtime.errors import MalformedError, TorchwheelError

INDEX = "https://host/index"
HERE = f"{INDEX}/demo/"
FILE = "demo-1.0+cu130torch2.11-cp312-cp312-manylinux_2_28_x86_64.whl"

LONG = ">=" + 5000 * "9"
"""A range of versions that Python refuses to compare with."""


def candidates(text: str):
    return find_page(INDEX, "demo", Pages({HERE: text}))[1]


def test_the_note_of_our_index_is_believed_before_the_name():
    claims = wheelmaker.stable(archs=("8.0", "9.0+PTX"))
    (own,) = candidates(document(entry(FILE, **note(claims))))
    assert (own.described, own.needs) == (True, needs_of_claims(claims))
    (other,) = candidates(document(entry(FILE)))
    assert (other.described, other.needs.torch) == (False, ("==2.11.*",))
    # An index of a later torchwheel: its names still say something.
    (later,) = candidates(document(entry(FILE, **note(schema=2))))
    assert later == other


def test_a_labelled_wheel_and_the_file_of_its_labels():
    file = "demo-1.0-py3-none-any-cu13.whl"
    (alone,) = candidates(document(entry(file)))
    assert (alone.label, alone.label_file) == ("cu13", None)
    (whole,) = candidates(document(entry(file), entry("demo-1.0-variants.json")))
    assert (whole.label, whole.label_file) == ("cu13", "demo-1.0-variants.json")
    assert not candidates(document(entry("demo-1.0-py3-none-any-0123456789abcdefg.whl")))


def test_what_is_offered_by_its_version_alone_is_not_withdrawn():
    (own,) = candidates(document(entry(FILE, yanked="it needs torch", **note())))
    assert own.withdrawn is None
    (own,) = candidates(document(entry(FILE, yanked="wrong", **note(withdrawn=True))))
    assert own.withdrawn == "wrong"
    (other,) = candidates(document(entry(FILE, yanked="wrong")))
    assert other.withdrawn == "wrong"
    (other,) = candidates(document(entry(FILE, yanked=True)))
    assert other.withdrawn == "no reason given"


@pytest.mark.parametrize("text", [LONG, ">=x", ""])
def test_a_range_of_pythons_that_cannot_be_read_excludes_nothing(text):
    (one,) = candidates(document(entry(FILE, **{"requires-python": text})))
    assert one.requires_python is None


def test_addresses_are_absolute():
    (one,) = candidates(
        document(entry(FILE, **{"core-metadata": {"sha256": DIGEST}, "provenance": "/p.json"}))
    )
    assert one.url == f"https://host/files/{FILE}"
    assert one.metadata == (f"{one.url}.metadata", DIGEST)
    assert one.provenance == "https://host/p.json"


@pytest.mark.parametrize(
    "page",
    [
        f'<a href="../../files/{FILE}#sha256={DIGEST}">x</a>',
        f'<a href="../../files/{FILE}#egg=demo&sha256={DIGEST}">x</a>',
        f'<A HREF = " ../../files/{FILE}#sha256={DIGEST.upper()} ">x</A>',
        f'<base href="/files/"><a href="{FILE}#sha256={DIGEST}">x</a>',
        f'<base href="https://host/files/"><base href="/x/"><a href="{FILE}#sha256={DIGEST}">x</a>',
    ],
)
def test_links_of_html_are_read_as_pip_reads_them(page):
    (one,) = candidates(page)
    assert (one.url, one.sha256) == (f"https://host/files/{FILE}", DIGEST)


def test_a_page_of_links_has_those_of_the_project():
    other = "other_demo-1.0-py3-none-any.whl"
    links = f'<a href="{FILE}#sha256={DIGEST}">x</a><a href="{other}#sha256={DIGEST}">x</a>'
    fetch = Pages({"https://host/links.html": links})
    url, (one,) = find_page("https://host/links.html", "demo", fetch)
    assert (url, one.url) == ("https://host/links.html", f"https://host/{FILE}")
    assert find_page("https://host/links.html", "nothing", fetch) is None
    # A host that leads to its front page where it has nothing.
    fetch.pages["https://host/links.html/demo/"] = "<html>log in</html>"
    assert find_page("https://host/links.html", "demo", fetch) == (url, (one,))


def test_the_root_of_a_large_index_is_no_page_of_links():
    """It is asked for one where somebody named it, and never by a build or a release."""
    asked = []

    class LargeIndex:
        def page(self, url, accept):
            asked.append(url)
            if url == "https://host/simple":
                raise TorchwheelError(f"{url}: expected at most 8.0 MiB, found more")

    assert find_page("https://host/simple", "demo", LargeIndex()) is None
    assert asked.pop() == "https://host/simple"
    assert find_files("https://host/simple", "demo", LargeIndex()) is None
    assert asked[-1] == "https://host/simple/demo/index.json"


@pytest.mark.parametrize("answer", ['{"error": "no such page"}', "{", None])
def test_a_guessed_document_that_is_not_ours_counts_for_nothing(answer):
    class Odd(Pages):
        def page(self, url, accept):
            if url.endswith("index.json") and answer is None:
                raise TorchwheelError(f"{url}: expected an answer, found status 500")
            return super().page(url, accept)

    page = f'<a href="{FILE}#sha256={DIGEST}">x</a>'
    odd = Odd({HERE: page, f"{HERE}index.json": answer})
    assert len(find_page(INDEX, "demo", odd)[1]) == 1


def test_the_query_of_an_address_stays_behind_the_path():
    fetch = Pages({f"{HERE}?token=x": document(entry(FILE))})
    url, (one,) = find_page(f"{INDEX}/?token=x#y", "demo", fetch)
    assert url == f"{HERE}?token=x"
    assert one.url == f"https://host/files/{FILE}?token=x"
    fetch = Pages({f"{HERE}?token=x": document(entry(FILE, **{"core-metadata": True}))})
    (one,) = find_page(f"{INDEX}?token=x", "demo", fetch)[1]
    assert one.metadata == (f"https://host/files/{FILE}.metadata?token=x", None)


NONE, NINES = "py3-none-any.whl", "9" * 5000


@pytest.mark.parametrize(
    "name",
    [
        *("demo-1.0.tar.gz", "demo-1.0-py3-none-any.zip", f"other-1.0-{NONE}", f"demo-one-{NONE}"),
        *("demo.whl", f"demo-{NINES}-{NONE}", f"demo-1.0-{NINES}-{NONE}", f"../demo-1.0-{NONE}"),
        f"demo-1.0-{NONE}\n.whl",
        f"demo-1.0-{'.'.join(['py3'] * 99)}-{'.'.join(['none'] * 99)}-any.whl",
    ],
)
def test_what_is_no_wheel_of_the_project_is_skipped(name):
    assert candidates(document(entry(name))) == ()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (document(name="torch"), 'name: expected demo, found "torch"'),
        ("{", "expected JSON"),
        ('{"name": "demo"}', 'expected key "files", found none'),
        (document({"filename": FILE}), "files[0]: expected a filename and a url, found none"),
        (document(entry(FILE, url=3)), "files[0]: url: expected text"),
        (document(entry(FILE, hashes={"sha256": "x"})), "hashes.sha256: expected 64 hex digits"),
        (document(entry(FILE, size=-1)), "size: expected a number of bytes"),
        (document(entry(FILE, size=True)), "size: expected a number of bytes"),
        (document(entry(FILE, **note(needs={"abi": "x"}))), "_torchwheel: needs.abi: expected"),
        (document(entry(FILE, **note(withdrawn=1))), "_torchwheel: withdrawn: expected true or"),
        (document(entry(FILE, **note(needs={"torch": [">=x"]}))), 'needs.torch: expected e.g. ">='),
        (document(entry(FILE, **note(needs={"torch": [LONG]}))), 'needs.torch: expected e.g. ">='),
        (document(_torchwheel={"bundled": "x"}), "_torchwheel: bundled: expected names, found"),
        (document(_torchwheel={"bundled": [3]}), "_torchwheel: bundled: expected names, found"),
        (document(_torchwheel=3), "_torchwheel"),
        (document(*[entry(FILE)] * 20_001), "files: expected at most 20000, found 20001"),
    ],
)
def test_a_malformed_document_is_one_line(text, says):
    with pytest.raises(MalformedError) as caught:
        candidates(text)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("url", ["file:///etc/passwd", "http://127.0.0.1/x", "ftp://host/x"])
def test_a_page_leads_nowhere_on_this_machine(url):
    with pytest.raises(TorchwheelError):
        candidates(document(entry(FILE, url=url)))
    with pytest.raises(TorchwheelError):
        candidates(document(entry(FILE, provenance=url)))


def test_a_page_of_html():
    page = f"""<a href="x/{FILE.replace("+", "%2B")}#sha256={DIGEST}"
        data-requires-python="&gt;=3.10" data-core-metadata="sha256={DIGEST}">x</a>
        <a href="y/demo-2.0-py3-none-any.whl" data-yanked="">y</a><a>z</a>"""
    first, second = candidates(page)
    assert (first.file, first.sha256) == (FILE, DIGEST)
    assert first.url == f"{HERE}x/{FILE.replace('+', '%2B')}"
    assert str(first.requires_python) == ">=3.10"
    assert first.metadata == (f"{first.url}.metadata", DIGEST)
    assert (second.sha256, second.withdrawn) == (None, "no reason given")


def test_html_that_the_parser_takes_for_impossible_is_one_line():
    with pytest.raises(MalformedError, match=r"^https://host/index/demo/: expected HTML, found "):
        candidates("<a><![<![")


def test_where_a_page_is_looked_for():
    root = Pages({f"{INDEX}/all/demo/index.json": document(entry(FILE, url=FILE))})
    _, (wheel,) = find_page(f"{INDEX}/", "demo", root)
    assert wheel.url == f"{INDEX}/all/demo/{FILE}"
    # A plain host: the document lies beside the page.
    plain = Pages({HERE: "<a>", f"{HERE}index.json": document(entry(FILE, url=FILE))})
    assert len(find_page(INDEX, "demo", plain)[1]) == 1
    assert find_page(INDEX, "demo", Pages({})) is None


def test_no_document_breaks_it():
    good = document(entry(FILE, size=3, yanked="x", **note()))
    lines = []
    for seed in range(300):
        content = jsonmutator.mutated(good, random.Random(seed))
        try:
            find_page(INDEX, "demo", Pages({HERE: content}))
        except TorchwheelError as error:
            lines.append(str(error))
    assert len(lines) > 50
    assert not [line for line in lines if "\n" in line]
