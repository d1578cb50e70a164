"""The index as files: links, hashes, metadata, bytes."""

import dataclasses
import hashlib
import html
import html.parser
import json
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from torchwheel.index.front import fronts
from torchwheel.index.groups import groups_of
from torchwheel.index.listing import utc_time
from torchwheel.index.writer import IndexedWheel, build_index
from torchwheel_runtime.claims import Claims
from torchwheel_runtime.errors import TorchwheelError, UsageError
from torchwheel_runtime.variant_format import read_labels
from wheelmaker import PURE, make_wheel, metadata, stable, universal

TAG = "py3-none-manylinux_2_34_x86_64"
NAME = f"demo-1.0.0+cu130-{TAG}.whl"


@pytest.fixture
def index(tmp_path: Path) -> Path:
    binary = make_wheel(tmp_path / "dist", version="1.0.0+cu130", tag=TAG, claims=stable())
    pure = make_wheel(tmp_path / "dist")
    older = make_wheel(tmp_path / "dist", version="0.9")
    build_index(
        [
            IndexedWheel(older, ("cpu",)),
            IndexedWheel(binary, ("cu130", "cu130/torch2.11")),
            IndexedWheel(pure, ("cpu", "cu130", "cu130/torch2.11")),
        ],
        tmp_path / "index",
    )
    return tmp_path / "index"


class Links(html.parser.HTMLParser):
    def __init__(self, page: Path) -> None:
        super().__init__()
        self.found: dict[str, dict[str, str | None]] = {}
        self._open: dict[str, str | None] | None = None
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._open = dict(attrs) if tag == "a" else None

    def handle_data(self, data: str) -> None:
        if self._open is not None:
            self.found[data] = self._open
            self._open = None


def test_the_files_of_an_index(index: Path) -> None:
    found = {str(path.relative_to(index)) for path in index.rglob("*") if path.is_file()}
    wheels = {NAME, "demo-1.0.0-py3-none-any.whl", "demo-0.9-py3-none-any.whl"}
    pages = {
        f"{folder}/index.{kind}"
        for group in ("all", "cpu", "cu130", "cu130/torch2.11")
        for folder in (group, f"{group}/demo")
        for kind in ("html", "json")
    }
    beside = {f"files/{name}{end}" for name in wheels for end in ("", ".metadata")}
    assert found == {"index.html", "files/index.html"} | pages | beside


@pytest.mark.parametrize("group", ["cu130", "cu130/torch2.11"])
def test_a_page_leads_to_its_files(index: Path, group: str) -> None:
    page = index / group / "demo" / "index.html"
    links = Links(page).found
    assert list(links) == [NAME, "demo-1.0.0-py3-none-any.whl"]
    for name, link in links.items():
        address = urlsplit(link["href"] or "")
        target = (page.parent / unquote(address.path)).resolve()
        assert target == index / "files" / name
        assert "+" not in address.path
        assert address.fragment == f"sha256={hashlib.sha256(target.read_bytes()).hexdigest()}"
        beside = Path(f"{target}.metadata").read_bytes()
        expected = f"sha256={hashlib.sha256(beside).hexdigest()}"
        assert link["data-core-metadata"] == link["data-dist-info-metadata"] == expected
        assert link["data-requires-python"] == ">=3.10"


def test_the_document_says_what_the_page_says(index: Path) -> None:
    page = index / "cu130/torch2.11/demo"
    document = json.loads((page / "index.json").read_text())
    assert document["meta"] == {"api-version": "1.4"}
    assert (document["name"], document["versions"]) == ("demo", ["1.0.0", "1.0.0+cu130"])
    links = Links(page / "index.html").found
    assert [file["filename"] for file in document["files"]] == list(links)
    for file in document["files"]:
        link = links[file["filename"]]
        assert f"{file['url']}#sha256={file['hashes']['sha256']}" == link["href"]
        assert file["core-metadata"] == file["data-dist-info-metadata"]
        assert link["data-core-metadata"] == f"sha256={file['core-metadata']['sha256']}"
        assert file["requires-python"] == ">=3.10"
        assert file["size"] == (page / unquote(file["url"])).stat().st_size


def test_one_document_has_the_wheels_of_all_groups(index: Path) -> None:
    page = index / "all" / "demo"
    document = json.loads((page / "index.json").read_text())
    names = [file["filename"] for file in document["files"]]
    assert names == [NAME, "demo-1.0.0-py3-none-any.whl", "demo-0.9-py3-none-any.whl"]
    for file in document["files"]:
        assert (page / unquote(file["url"])).is_file()
    binary, pure, _ = document["files"]
    assert binary["yanked"].startswith("it needs torch>=2.11")
    assert binary["_torchwheel"] == {
        "schema": 1,
        "needs": {
            "abi": "stable",
            "torch": [">=2.11"],
            "kernels": [{"backend": "cuda", "release": "13.0", "archs": ["8.0", "9.0"]}],
            "for_cpu": False,
            "old_abi": None,
        },
        "withdrawn": False,
    }
    assert (pure["yanked"], pure["_torchwheel"]["needs"]["abi"]) == (False, "pure")


def test_metadata_files_are_the_wheels_own(index: Path) -> None:
    found = (index / "files" / "demo-1.0.0-py3-none-any.whl.metadata").read_bytes()
    assert found == metadata("demo", "1.0.0", ["torch>=2.6"])


def test_lists_of_projects_and_groups(index: Path) -> None:
    assert Links(index / "cu130" / "index.html").found.keys() == {"demo"}
    document = json.loads((index / "cu130" / "index.json").read_text())
    assert document["projects"] == [{"name": "demo"}]
    groups = Links(index / "index.html").found
    assert {name: link["href"].partition("#")[0] for name, link in groups.items()} == {
        **{name: f"{name}/" for name in ("all", "cpu", "cu130")},
        **{"torch2.11": "cu130/torch2.11/", "All versions": "all/demo/"},
        "cu130-stable": "files/demo-1.0.0%2Bcu130-py3-none-manylinux_2_34_x86_64.whl",
        "pure": "files/demo-1.0.0-py3-none-any.whl",
    }


def test_a_person_sees_command_size_and_hash(index: Path) -> None:
    text = (index / "cpu" / "demo" / "index.html").read_text()
    wheel = index / "files" / "demo-1.0.0-py3-none-any.whl"
    assert "--extra-index-url" not in text
    assert "<pre>pip install --index-url" in text
    assert f"{wheel.stat().st_size / 1024:.1f} KiB" in text
    assert text.index("demo-1.0.0-") < text.index("demo-0.9-")


def everything(index: Path) -> dict[str, bytes]:
    return {str(p.relative_to(index)): p.read_bytes() for p in index.rglob("*") if p.is_file()}


def test_the_same_wheels_give_the_same_bytes(index: Path, tmp_path: Path) -> None:
    dist = tmp_path / "dist"
    wheels = [
        IndexedWheel(dist / "demo-1.0.0-py3-none-any.whl", ("cu130/torch2.11", "cu130", "cpu")),
        IndexedWheel(dist / NAME, ("cu130/torch2.11", "cu130")),
        IndexedWheel(dist / "demo-0.9-py3-none-any.whl", ("cpu",)),
    ]
    before = everything(index)
    build_index(wheels, index)
    assert everything(index) == before


def test_what_is_no_longer_offered_is_gone(index: Path, tmp_path: Path) -> None:
    build_index([IndexedWheel(tmp_path / "dist" / NAME, ("cu130",))], index)
    assert not (index / "cpu").exists()
    assert not (index / "files" / "demo-0.9-py3-none-any.whl").exists()


def test_a_broken_wheel_leaves_the_index_as_it_was(index: Path, tmp_path: Path) -> None:
    before = everything(index)
    broken = make_wheel(tmp_path / "new", version="2.0")
    broken.write_bytes(broken.read_bytes()[:-9])
    with pytest.raises(TorchwheelError, match="not a whole zip archive"):
        build_index([IndexedWheel(broken, ("cpu",))], index)
    assert everything(index) == before
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_html_is_escaped(tmp_path: Path) -> None:
    info = "demo-1.0.0.dist-info/METADATA"
    text = metadata("demo", "1.0.0", []).replace(b">=3.10", b">=3.10,<4")
    wheel = make_wheel(tmp_path, bend=lambda members: members.update({info: text}))
    build_index([IndexedWheel(wheel, ("cpu",))], tmp_path / "index")
    page = tmp_path / "index/cpu/demo/index.html"
    assert 'data-requires-python="&lt;4,&gt;=3.10"' in page.read_text()


@pytest.mark.parametrize(
    "group",
    ["all", "all/x", "files", "files/x", "../x", "/x", "a//b", "", "a/", "<b>", "A b"],
)
def test_bad_group(tmp_path: Path, group: str) -> None:
    with pytest.raises(UsageError, match="no name of an index group"):
        build_index([IndexedWheel(make_wheel(tmp_path), (group,))], tmp_path / "index")
    assert not (tmp_path / "index").exists()


def test_two_wheels_of_one_name(tmp_path: Path) -> None:
    one, two = make_wheel(tmp_path / "a"), make_wheel(tmp_path / "b", requires=())
    with pytest.raises(UsageError, match="two different wheels are named demo-1"):
        build_index([IndexedWheel(one, ("cpu",)), IndexedWheel(two, ("cpu",))], tmp_path / "i")


def test_when_a_wheel_entered_the_index(tmp_path: Path) -> None:
    wheel, new = make_wheel(tmp_path), make_wheel(tmp_path, version="1.1")
    build_index(
        [IndexedWheel(wheel, ("cpu",), utc_time(1767225600)), IndexedWheel(new, ("cpu",))],
        tmp_path / "index",
    )
    page = tmp_path / "index/cpu/demo"
    by_its_file, known = json.loads((page / "index.json").read_text())["files"]
    assert known["upload-time"] == "2026-01-01T00:00:00Z"
    assert by_its_file["upload-time"] == utc_time(new.stat().st_mtime)
    link = Links(page / "index.html").found[wheel.name]
    assert link["data-upload-time"] == known["upload-time"]


def small_and_universal(tmp_path: Path, group: str) -> Path:
    """The page of a group with a wheel for torch>=2.11 and one for every torch."""
    small = make_wheel(tmp_path / "dist", version="1.0.0+cu130", tag=TAG, claims=stable())
    wide = make_wheel(tmp_path / "dist", tag=TAG, claims=universal())
    build_index([IndexedWheel(wheel, (group,)) for wheel in (small, wide)], tmp_path / "index")
    return tmp_path / "index" / group / "demo"


@pytest.mark.parametrize("group", ["cu130", "cu130/torch2.11"])
def test_a_wheel_that_could_move_torch_is_offered_by_its_version_alone(
    tmp_path: Path, group: str
) -> None:
    page = small_and_universal(tmp_path, group)
    small, wide = json.loads((page / "index.json").read_text())["files"]
    assert wide["yanked"] is False
    assert small["yanked"] == (
        "it needs torch>=2.11, and pip would replace another; "
        "name its version to install it: demo==1.0.0+cu130"
    )
    links = Links(page / "index.html").found
    assert "data-yanked" not in links[wide["filename"]]
    assert links[small["filename"]]["data-yanked"] == small["yanked"]


def test_the_universal_wheel_of_another_machine_or_version_does_not_stand_in(
    tmp_path: Path,
) -> None:
    small = make_wheel(tmp_path, version="1.0.0+cu130", tag=TAG, claims=stable())
    arm = make_wheel(tmp_path, tag=TAG.replace("x86_64", "aarch64"), claims=universal())
    older = make_wheel(tmp_path, version="0.9", tag=TAG, claims=universal())
    wheels = [IndexedWheel(wheel, ("cu130/torch2.11",)) for wheel in (small, arm, older)]
    build_index(wheels, tmp_path / "index")
    page = tmp_path / "index/cu130/torch2.11/demo/index.json"
    assert [file["yanked"] for file in json.loads(page.read_text())["files"]] == [False] * 3


CPU_ATEN = Claims(variant="cpu-torch2.11-cp312", abi="aten", torch_release="2.11")


@pytest.mark.parametrize(
    ("claims", "group"),
    [
        (PURE, "cpu"),
        (CPU_ATEN, "cpu"),
        (stable(), "cu130"),
        (stable(toolkit="rocm7.2", backend="rocm", toolkit_version="7.2"), "rocm7.2"),
        (universal(["cuda 12.4", "cuda 13.0", "rocm 7.2"]), "cu130"),
        # No torch was published for it, so it has no group of its own.
        (universal(["cuda 13.1"]), "cpu"),
    ],
    ids=str,
)
def test_a_wheel_is_installed_from_the_group_of_its_newest_toolkit(tmp_path, claims, group):
    wheel = make_wheel(tmp_path, claims=claims, tag=TAG if claims.backend else "py3-none-any")
    (own,) = groups_of([claims])
    index = build_index([IndexedWheel(wheel, own)], tmp_path / "index")
    (file,) = index.whole.projects["demo"]
    assert index.group_for(file).name == group


REQUIRES = ("torch>=2.6", "helper", 'other>=1; python_version < "3.12"', "x; extra == 'all'")


def test_a_command_asks_the_usual_index_for_what_this_one_lacks(tmp_path: Path) -> None:
    demo = make_wheel(tmp_path, requires=REQUIRES)
    helper = make_wheel(tmp_path, name="helper", claims=None, requires=("third", "demo"))
    index = build_index([IndexedWheel(one, ("cpu",)) for one in (demo, helper)], tmp_path / "index")
    (front,) = fronts(index)
    choice = front.one
    assert choice is not None
    lacks = "'other>=1; python_version < \"3.12\"' third"
    assert choice.text("pip", "https://host/") == (
        f'pip install {lacks} && pip install --index-url https://host/all/ "demo"'
    )
    assert choice.text("uv", "https://host/") == (
        f'uv pip install {lacks} && uv pip install --default-index https://host/all/ "demo"'
    )
    page = (tmp_path / "index" / "cpu" / "demo" / "index.html").read_text()
    assert f"<pre>pip install {lacks} && pip install --index-url" in html.unescape(page)


def labelled(folder: Path, claims: Claims, label: str, machine: str = "x86_64") -> IndexedWheel:
    own = dataclasses.replace(claims, variant=f"universal-{label}", label=label)
    tag = "py3-none-any" if claims.abi == "pure" else f"py3-none-manylinux_2_17_{machine}"
    return IndexedWheel(make_wheel(folder / machine, tag=tag, claims=own), ("cpu", "cu130"))


def test_labels_lie_beside_each_page_of_the_project(tmp_path: Path) -> None:
    wheels = [labelled(tmp_path, universal(), "cu13"), labelled(tmp_path, PURE, "null")]
    plain = IndexedWheel(make_wheel(tmp_path / "dist"), ("cpu", "cu130"))
    found = build_index([plain, *wheels], tmp_path / "index")
    name, texts = "demo-1.0.0-variants.json", set()
    for folder in ("all/demo", "cpu/demo", "cu130/demo", "files"):
        text = (tmp_path / "index" / folder / name).read_bytes()
        texts.add(text)
        digest = hashlib.sha256(text).hexdigest()
        link = Links(tmp_path / "index" / folder / "index.html").found[name]
        assert link["href"] == f"{name}#sha256={digest}"
        if folder != "files":
            page = json.loads((tmp_path / "index" / folder / "index.json").read_text())
            (entry,) = (file for file in page["files"] if file["filename"] == name)
            assert (entry["url"], entry["hashes"]) == (name, {"sha256": digest})
            assert (entry["size"], entry["yanked"]) == (len(text), False)
            assert entry["upload-time"] == max(file["upload-time"] for file in page["files"][1:])
    (only,) = texts
    assert list(read_labels(only, name)) == ["cu13", "null"]
    # What everybody is told to install has no label; what uv chooses by label comes after it.
    (front,) = fronts(found)
    assert front.one
    assert set(front.one.files.values()) == {"demo-1.0.0-py3-none-any.whl"}
    assert [file.label for file in front.wheels] == [None, "cu13", "null"]
    page = html.unescape((tmp_path / "index" / "index.html").read_text())
    assert "<pre>uv --preview-features wheel-variants pip install --default-index" in page
    assert "<code>null</code> (" in page


def test_one_label_has_the_same_properties_on_every_platform(tmp_path: Path) -> None:
    wheels = [
        labelled(tmp_path, universal(), "cu"),
        labelled(tmp_path, universal(["cuda 12.4"]), "cu", "aarch64"),
    ]
    says = "expected the properties that other wheels of demo-1.0.0-variants.json have"
    with pytest.raises(UsageError, match=says):
        build_index(wheels, tmp_path / "index")
