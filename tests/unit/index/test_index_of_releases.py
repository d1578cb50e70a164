"""The index of several releases: links to their stores, what was withdrawn, and nothing else."""

import contextlib
import dataclasses
import itertools
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from torchwheel.cli import main
from torchwheel.index.catalogue import (
    About,
    Catalogue,
    CatalogueWheel,
    SmokeRun,
    catalogue_text,
    read_wheel_entry,
)
from torchwheel.index.listing import Index, Store, index_of, store_of
from torchwheel.index.pages import index_pages
from torchwheel.index.withdrawals import parse_withdrawals
from torchwheel.index.writer import write_index
from torchwheel.inspect.wheel import read_wheel
from torchwheel_runtime.arch.releases import ToolkitRelease, torch_releases
from torchwheel_runtime.errors import UsageError
from wheelmaker import make_wheel, stable, universal

TAG = "py3-none-manylinux_2_28_x86_64"
ASSETS = "https://forge.example/o/demo/releases/download/{tag}"
GROUP = "cu130/torch2.11"


def release(folder: Path, version: str, day: int) -> Catalogue:
    """A universal wheel, a small one and a bundled package that stays the same."""
    made = (
        {"version": version, "tag": TAG, "claims": universal()},
        {"version": f"{version}+cu130", "tag": TAG, "claims": stable()},
        {"name": "helper", "claims": None, "requires": ()},
    )
    wheels = tuple(entry(folder, f"2026-11-{day:02}T08:00:00Z", **wheel) for wheel in made)
    return Catalogue("demo", f"v{version}", wheels)


def entry(folder: Path, uploaded: str, **wheel: Any) -> CatalogueWheel:
    return read_wheel_entry(read_wheel(make_wheel(folder, **wheel)), uploaded)


@pytest.fixture
def releases(tmp_path: Path) -> list[Catalogue]:
    return [release(tmp_path / tag, tag, day) for day, tag in ((1, "1.0.0"), (2, "1.1.0"))]


def all_of(releases: list[Catalogue]) -> Index:
    """The index of releases of which nothing was withdrawn."""
    return index_of(releases, Store(ASSETS), parse_withdrawals("schema: 1", ""))


def pages(releases: list[Catalogue], withdrawn: str = "", address: str = ASSETS) -> dict[str, str]:
    withdrawals = parse_withdrawals(f"schema: 1\n{withdrawn}", "yanked.yaml")
    index = index_of(releases, Store(address), withdrawals)
    return {path: page.text() for page in index_pages(index) for path in page.paths}


def files(pages: dict[str, str], group: str = GROUP, project: str = "demo") -> dict[str, Any]:
    document = json.loads(pages[f"{group}/{project}/index.json"])
    return {file["filename"]: file for file in document["files"]}


def test_files_are_links_to_the_assets_of_their_releases(releases: list[Catalogue]) -> None:
    found = pages(releases)
    listed = files(found)
    assert list(listed) == [
        *(f"demo-1.1.0+cu130-{TAG}.whl", f"demo-1.1.0-{TAG}.whl"),
        *(f"demo-1.0.0+cu130-{TAG}.whl", f"demo-1.0.0-{TAG}.whl"),
    ]
    small = releases[0].wheels[1]
    address = f"https://forge.example/o/demo/releases/download/v1.0.0/demo-1.0.0%2Bcu130-{TAG}.whl"
    assert listed[small.file]["url"] == address
    assert listed[small.file]["hashes"] == {"sha256": small.sha256}
    assert listed[small.file]["core-metadata"] == {"sha256": small.metadata_sha256}
    assert f'href="{address}#sha256={small.sha256}"' in found[f"{GROUP}/demo/index.html"]


def test_the_index_holds_pages_alone(releases: list[Catalogue], tmp_path: Path) -> None:
    write_index(all_of(releases), tmp_path / "i")
    names = {path.name for path in (tmp_path / "i").rglob("*") if path.is_file()}
    assert names == {"index.html", "index.json"}


def test_a_store_of_one_folder_beside_the_index(releases: list[Catalogue]) -> None:
    found = files(pages(releases, address="store/{tag}"))
    assert found[f"demo-1.0.0-{TAG}.whl"]["url"] == f"../../../store/v1.0.0/demo-1.0.0-{TAG}.whl"
    found = files(pages(releases, address="/store"), "cpu")
    assert found[f"demo-1.0.0-{TAG}.whl"]["url"] == f"/store/demo-1.0.0-{TAG}.whl"


@pytest.mark.parametrize("address", ["", "{file}", "https://x/{tag.__class__}", 'a"b', "a b", "é"])
def test_an_address_that_is_none_is_one_line(address: str) -> None:
    with pytest.raises(UsageError, match=r"--address: expected e\.g\."):
        Store(address)


def test_the_releases_of_the_forge_are_the_default_store() -> None:
    job = {"GITHUB_SERVER_URL": "https://forge.example", "GITHUB_REPOSITORY": "o/demo"}
    assert store_of(None, job) == Store(ASSETS)
    assert store_of("/x", job) == Store("/x")
    with pytest.raises(UsageError, match="--address: expected the address of a release's files"):
        store_of(None, {"GITHUB_SERVER_URL": "https://forge.example"})


def test_a_bundled_package_keeps_its_first_address(releases: list[Catalogue]) -> None:
    for order in itertools.permutations(releases):
        (helper,) = files(pages(list(order)), project="helper").values()
        assert "/v1.0.0/helper-1.0.0" in helper["url"]
        assert helper["upload-time"] == "2026-11-01T08:00:00Z"


def test_the_order_of_the_catalogues_is_no_matter(releases: list[Catalogue]) -> None:
    assert pages(releases) == pages(releases[::-1])


def test_a_withdrawn_wheel_is_yanked_with_its_reason(releases: list[Catalogue]) -> None:
    found = pages(releases, "yanked: {demo==1.1.0: 'wrong <sums>'}")
    listed = files(found)
    assert {name: file["yanked"] for name, file in listed.items() if "-1.1.0" in name} == {
        f"demo-1.1.0+cu130-{TAG}.whl": "wrong <sums>",
        f"demo-1.1.0-{TAG}.whl": "wrong <sums>",
    }
    assert listed[f"demo-1.0.0-{TAG}.whl"]["yanked"] is False
    page = found[f"{GROUP}/demo/index.html"]
    assert page.count('data-yanked="wrong &lt;sums&gt;"') == 2
    assert page.count('<div class="note">withdrawn: wrong &lt;sums&gt;</div>') == 2


def test_a_small_wheel_is_not_offered_in_place_of_a_withdrawn_universal_one(
    releases: list[Catalogue],
) -> None:
    """pip would take the small one of 1.1.0 and replace torch for it."""
    wide = releases[1].wheels[0].file
    found = pages(releases, f"yanked: {{{wide}: wrong}}")
    small = files(found)[f"demo-1.1.0+cu130-{TAG}.whl"]
    assert small["yanked"].startswith("it needs torch>=2.11, and pip would replace another")


def test_a_withdrawn_version_moves_no_torch(releases: list[Catalogue]) -> None:
    """`==1.1.0` would take 1.1.0+cu130, where everything else of the version is yanked too."""
    small = releases[1].wheels[1].file
    for withdrawn in ("demo==1.1.0", releases[1].wheels[0].file):
        found = pages(releases, f"yanked: {{{withdrawn}: wrong}}")
        assert small not in files(found, "cu130")
        assert small in files(found)
    assert small in files(pages(releases, f"yanked: {{{small}: wrong}}"), "cu130")


def test_a_withdrawal_of_nothing_stops_the_index(releases: list[Catalogue]) -> None:
    with pytest.raises(UsageError, match="yanked: expected a published wheel, found"):
        pages(releases, "yanked: {demo==9: wrong}")


def test_a_withdrawal_stops_no_later_release(tmp_path: Path, releases: list[Catalogue]) -> None:
    later = [*releases, release(tmp_path / "later", "1.2.0", 3)]
    for section in ("yanked", "removed"):
        found = files(pages(later, f"{section}: {{demo==1.0.0: wrong}}"))
        assert not found[f"demo-1.2.0-{TAG}.whl"]["yanked"]


def test_the_front_page_shows_what_is_known_of_each_wheel(releases: list[Catalogue]) -> None:
    wide, *others = releases[1].wheels
    about = {"date": "2026-11-02T08:00:00Z", "verdict": "passed", "python": "3.12.1"}
    machine = {"platform": "linux_x86_64", "torch": "2.13.0+cu130", "passed": 5551, "skipped": 76}
    gpu = {"on_gpu": True, "gpu": "NVIDIA H200", "arch": "9.0", "driver": "580.1"}
    tried = SmokeRun(record="universal.smoke-1.json", **about, **machine, **gpu)
    wide = dataclasses.replace(
        wide, gates=("record", "archs"), record="universal.build.json", smoke=(tried,), size=3 << 20
    )
    latest = dataclasses.replace(releases[1], wheels=(wide, *others))
    front = pages([releases[0], latest])["index.html"]
    store = "https://forge.example/o/demo/releases/download/v1.1.0"
    for text in (
        f'<a href="{store}/{wide.file}">universal</a>',
        "3.0 MiB",
        f'<a href="{store}/universal.build.json">2 ok</a>',
        f'<a href="{store}/universal.smoke-1.json">',
        "NVIDIA H200",
        "5551 passed",
    ):
        assert text in front, text
    # Of wheels without records there is nothing to say.
    small = pages([dataclasses.replace(releases[1], wheels=tuple(others))])["index.html"]
    for title in ("Gates", "Smoke tests"):
        assert f"<th>{title}</th>" in front
        assert f"<th>{title}</th>" not in small
    gpus = re.findall(r'<span class="short">(.*?),?</span>', small)
    assert gpus == ["8.0 (A100)", "9.0 (H100)"]


def ordinary(folder: Path) -> Catalogue:
    """A wheel for each torch, Python and toolkit, as an ordinary project has them."""
    toolkits = [("cuda", "12.6", "8.0"), ("cuda", "13.0", "9.0a+PTX"), ("rocm", "6.4", "gfx942")]
    made = []
    for (backend, version, arch), torch, python in itertools.product(
        toolkits, ("2.9", "2.10"), ("39", "310", "312")
    ):
        if version not in torch_releases()[torch].toolkits[backend]:
            continue
        toolkit = ToolkitRelease(backend, version).name
        name = {"variant": f"{toolkit}-torch{torch}-cp{python}", "abi": "aten"}
        built = {"backend": backend, "toolkit": toolkit, "toolkit_version": version}
        claims = stable(archs=(arch,), torch_release=torch, **name, **built)
        local, tag = f"1.0.0+{toolkit}torch{torch}", f"cp{python}-cp{python}-linux_x86_64"
        made.append(entry(folder, DAY, version=local, tag=tag, claims=claims))
    return Catalogue("demo", "v1.0.0", tuple(made))


DAY = "2026-11-01T08:00:00Z"
WIDE = {"tag": TAG, "claims": universal()}
SMALL = {"tag": TAG, "claims": stable(), "version": "1.0.0+cu130"}
OF_ONE_TORCH = stable(variant="cu130-torch2.13-cp312", abi="aten", torch_release="2.13")
CP312 = {"tag": "cp312-cp312-linux_x86_64", "claims": OF_ONE_TORCH, "version": "1.0.0+cu130"}
STAYS = "Such a torch stays as it is."
# The wheels of a release; the index of its one command; what the page says of torch.
ONE_COMMAND: dict[str, tuple[list[dict[str, Any]], str, str]] = {
    "universal": ([WIDE], "all", "One wheel, for torch 2.6 or later."),
    "with small ones": ([WIDE, SMALL], "all", "One wheel, for torch 2.6 or later."),
    "stable": ([SMALL], "cu132/torch2.15", "One wheel, for torch 2.11 or later, CUDA 13."),
    "alone": ([CP312], "cu130/torch2.13", "One wheel, for torch 2.13, CUDA 13, Python 3.12."),
    "pure": ([{}], "all", "One wheel, for torch 2.6 or later."),
}


@pytest.mark.parametrize(("wheels", "group", "says"), ONE_COMMAND.values(), ids=ONE_COMMAND)
def test_where_all_answers_lead_to_one_file_its_command_comes_first(
    tmp_path: Path, wheels: list[dict[str, Any]], group: str, says: str
) -> None:
    """A torch stays as it is from the oldest on that the wheel is for: so the page names that."""
    made = tuple(entry(tmp_path, DAY, **wheel) for wheel in wheels)
    front = pages([Catalogue("demo", "v1.0.0", made)])["index.html"]
    first = re.findall(r"<pre>(.*?)</pre>", front)[0]
    assert f"ADDRESS_OF_THE_INDEX/{group}/ " in first
    assert f"<p>{says}\n{STAYS}" in front
    # What is left to choose is folded away: the smaller wheels.
    _, folded, after = front.partition('<details class="more">')
    assert bool(folded) == (len(wheels) > 1)
    assert front.count("<form") == after.count('<form class="questions"') == (len(wheels) > 1)


def test_a_wheel_for_each_torch_asks_beginning_with_the_commonest_set_up(tmp_path: Path) -> None:
    front = pages([ordinary(tmp_path)])["index.html"]
    assert "A wheel for each torch, 2.9 to 2.10." in front
    assert STAYS not in front
    assert '<details class="more">' not in front
    options = {
        name: re.findall(r"<option( selected)?>(.*?)<", of)
        for name, of in re.findall(r'<select name="(\w+)">(.*?)</select>', front)
    }
    assert {name: [value for _, value in of] for name, of in options.items()} == {
        "installer": ["pip", "uv"],
        "toolkit": [
            *(f"CUDA {v}" for v in ("13.0", "12.9", "12.8", "12.6")),
            "ROCm 6.4",
            "ROCm 6.3",
        ],
        "torch": ["2.10", "2.9"],
        "python": ["3.12", "3.10", "3.9"],
    }
    # PyPI's newest torch that a wheel is for: not the newest toolkit.
    chosen = [value for of in options.values() for selected, value in of if selected]
    assert chosen == ["CUDA 12.8", "2.10", "3.12"]
    gpus = re.findall(r"<li>(\S+ \S+): .*?>(.*?)</span>", front)
    assert gpus == [
        *(("CUDA 12.6", "8.0 (A100)"), ("CUDA 13.0", "9.0a+PTX (H100)")),
        ("ROCm 6.4", "gfx942 (MI300)"),
    ]


def test_versions_are_in_their_order(tmp_path: Path) -> None:
    made = [release(tmp_path / "a", "1.9.0", 1), release(tmp_path / "b", "1.10.0", 2)]
    found = pages(made)
    document = json.loads(found[f"{GROUP}/demo/index.json"])
    assert document["versions"] == ["1.9.0", "1.9.0+cu130", "1.10.0", "1.10.0+cu130"]
    front = pages([ordinary(tmp_path / "c")])["index.html"]
    assert re.findall(r'<a href="cu126/(\w.*?)/">', front) == ["torch2.10", "torch2.9"]
    variants = re.findall(r"<tr><td><a [^>]*>(cu126.*?)<", front)
    assert variants[:4] == [
        *("cu126-torch2.9-cp39", "cu126-torch2.9-cp310", "cu126-torch2.9-cp312"),
        "cu126-torch2.10-cp39",
    ]


def test_a_project_says_what_it_is_by_its_wheels(tmp_path: Path) -> None:
    lines = "Summary: <b>Fast</b>\nLicense-Expression: MIT\nProject-URL: Docs, https://d.example/"
    lines += "\nProject-URL: Source, javascript:alert(1)\nProject-URL: Homepage, http://s.example/"
    lines += "\nRequires-Dist: torchwheel-runtime\n"

    def describe(members: dict[str, bytes]) -> None:
        name = "demo-1.0.0.dist-info/METADATA"
        members[name] = members[name].replace(
            b"Requires-Python", f"{lines}Requires-Python".encode()
        )
        members["demo/__main__.py"] = b""

    made = entry(tmp_path, DAY, bend=describe)
    index = all_of([Catalogue("demo", "v1.0.0", (made,))])
    for docs, address in (("", "https://d.example/"), ("docs/", "docs/")):
        front = next(index_pages(index, docs)).text()
        for text in (
            *("<p>&lt;b&gt;Fast&lt;/b&gt;</p>", "<span>MIT</span>"),
            *(f'<a href="{address}">Documentation</a>', '<a href="http://s.example/">Source</a>'),
            *('<a href="all/demo/">All versions</a>', "<pre>python -m demo</pre>"),
            "<pre>torchwheel install demo --index ADDRESS_OF_THE_INDEX/</pre>",
        ):
            assert text in front, text
    # Catalogues of old releases say nothing of it.
    old = dataclasses.replace(made, about=About())
    front = pages([Catalogue("demo", "v1.0.0", (old,))])["index.html"]
    for title in ("Documentation", "Source", "Check"):
        assert title not in front


def test_folders_that_are_no_groups_answer_too(releases: list[Catalogue]) -> None:
    found = pages(releases)
    assert '<a href="demo/">demo</a>' in found["all/index.html"]
    every = {wheel.file for one in releases for wheel in one.wheels}
    for page in ("files/index.html", "all/demo/index.html", "all/helper/index.html"):
        listed = set(re.findall(r"<a [^>]*>(.*?)</a>", found[page]))
        assert listed <= every
        assert listed >= {name for name in every if page.split("/")[1] in (name[:4], name[:6])}
    assert set(re.findall(r"<a [^>]*>(.*?)</a>", found["files/index.html"])) == every


def test_a_removed_file_is_not_listed(releases: list[Catalogue]) -> None:
    wide = releases[1].wheels[0].file
    found = pages(releases, f"removed: {{{wide}: deleted}}")
    assert not [path for path, text in found.items() if wide in text]
    small = files(found)[f"demo-1.1.0+cu130-{TAG}.whl"]
    assert small["yanked"]


def test_the_state_of_a_project(releases: list[Catalogue]) -> None:
    found = pages(releases, "projects: {demo: {status: deprecated, reason: 'use <torch>'}}")
    document = json.loads(found[f"{GROUP}/demo/index.json"])
    assert document["project-status"] == {"status": "deprecated", "reason": "use <torch>"}
    assert len(document["files"]) == 4
    page = found[f"{GROUP}/demo/index.html"]
    assert '<meta name="pypi:project-status" content="deprecated">' in page
    assert '<meta name="pypi:project-status-reason" content="use &lt;torch&gt;">' in page
    assert "project-status" not in json.loads(found[f"{GROUP}/helper/index.json"])


def test_a_quarantined_project_has_a_page_and_no_file(releases: list[Catalogue]) -> None:
    found = pages(releases, "projects: {demo: {status: quarantined, reason: unsafe}}")
    document = json.loads(found[f"{GROUP}/demo/index.json"])
    assert (document["files"], document["versions"]) == ([], [])
    for page in (f"{GROUP}/demo/", "all/demo/", ""):
        assert ".whl" not in found[f"{page}index.html"]
    assert "demo-" not in found["files/index.html"]


def test_two_quarantined_projects_keep_their_names(releases: list[Catalogue]) -> None:
    state = "{status: quarantined, reason: unsafe}"
    found = pages(releases, f"projects: {{demo: {state}, helper: {state}}}")
    for project in ("demo", "helper"):
        assert json.loads(found[f"{GROUP}/{project}/index.json"])["name"] == project


def test_provenance_is_linked_where_there_is_one(releases: list[Catalogue]) -> None:
    wide = releases[0].wheels[0]
    wide = dataclasses.replace(wide, provenance=f"{wide.file}.provenance")
    first = dataclasses.replace(releases[0], wheels=(wide, *releases[0].wheels[1:]))
    found = pages([first, releases[1]])
    (listed,) = (file for file in files(found).values() if "provenance" in file)
    assert listed["provenance"] == f"{listed['url']}.provenance"
    assert f'data-provenance="{listed["url"]}.provenance"' in found[f"{GROUP}/demo/index.html"]
    # PEP 740 wants a secure address.
    assert "provenance" not in "".join(pages([first], address="http://x/{tag}").values())


def test_two_releases_with_different_files_of_a_name(releases: list[Catalogue]) -> None:
    other = dataclasses.replace(releases[0].wheels[2], sha256="0" * 64)
    second = dataclasses.replace(releases[1], wheels=(*releases[1].wheels[:2], other))
    with pytest.raises(UsageError, match=r"catalogues of v1\.0\.0 and v1\.1\.0"):
        pages([releases[0], second])


def test_a_page_that_has_not_changed_is_the_old_file(
    releases: list[Catalogue], tmp_path: Path
) -> None:
    out = tmp_path / "i"
    write_index(all_of(releases[:1]), out)
    before = {path.relative_to(out): path.stat() for path in out.rglob("*.json")}
    write_index(all_of(releases), out)
    same = {name for name, old in before.items() if (out / name).stat().st_ino == old.st_ino}
    assert Path(GROUP, "helper", "index.json") in same
    assert Path(GROUP, "demo", "index.json") not in same
    assert pages(releases) == {
        str(path.relative_to(out)): path.read_text() for path in out.rglob("*") if path.is_file()
    }


def _elsewhere(page: Path) -> None:
    """A symbolic link to the right bytes, whose own size is the page's too."""
    size, other = page.stat().st_size, page.rename(page.parents[4] / "x")
    slashes = "/" * (size - len(f"{other.parent}x"))  # Path would drop them
    os.symlink(f"{other.parent}{slashes}x", page)  # noqa: PTH211
    assert page.lstat().st_size == page.stat().st_size


def _pipe(page: Path) -> None:
    page.unlink()
    os.mkfifo(page)


SPOILED: dict[str, Callable[[Path], object]] = {
    "torn": lambda page: page.write_bytes(page.read_bytes()[:-5]),
    "changed": lambda page: page.write_bytes(page.read_bytes().replace(b"helper", b"hacker")),
    "elsewhere": _elsewhere,
    "pipe": _pipe,
    "away": Path.unlink,
}


@pytest.mark.parametrize("spoil", SPOILED.values(), ids=SPOILED)
def test_an_old_page_is_taken_only_with_the_bytes_that_were_written(
    releases: list[Catalogue], tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    index = all_of(releases)
    out, page = tmp_path / "i", Path(GROUP, "helper", "index.html")
    write_index(index, out)
    spoil(out / page)
    with contextlib.suppress(FileNotFoundError):
        os.link(out / page, tmp_path / "old", follow_symlinks=False)
    spoiled = (tmp_path / "old").read_bytes() if (tmp_path / "old").is_file() else None
    write_index(index, out)
    assert not (out / page).is_symlink()
    assert (out / page).read_text() == pages(releases)[str(page)]
    if spoiled is not None:
        assert (tmp_path / "old").read_bytes() == spoiled, "a reader of the old index has it open"


def test_groups_that_offer_the_same_files_have_one_document(
    releases: list[Catalogue], tmp_path: Path
) -> None:
    write_index(all_of(releases), tmp_path / "i")
    document = tmp_path / "i" / GROUP / "demo" / "index.json"
    assert document.samefile(tmp_path / "i" / "cu130/torch2.12/demo/index.json")
    # There the small wheel is offered by its version alone.
    assert not document.samefile(tmp_path / "i" / "cu130/demo/index.json")


def test_the_front_page_shows_the_newest_version(tmp_path: Path) -> None:
    two = [release(tmp_path / tag, tag, day) for day, tag in ((1, "1.9.0"), (2, "1.10.0"))]
    front = pages(two)["index.html"]
    assert "demo==1.10.0" in front
    assert "demo==1.9.0" not in front


def test_the_command(releases: list[Catalogue], tmp_path: Path, capsys: Any) -> None:
    for one in releases:
        (tmp_path / "earlier" / one.tag).mkdir(parents=True)
        (tmp_path / "earlier" / one.tag / "catalogue.json").write_text(catalogue_text(one))
    (tmp_path / "earlier" / "v0.9").mkdir()
    (tmp_path / "yanked.yaml").write_text("schema: 1\nyanked: {demo==1.1.0: wrong}\n")
    out = tmp_path / "index"
    options = ["--yanked", str(tmp_path / "yanked.yaml"), "--out", str(out), "--address", ASSETS]
    call = ["index", "build", str(tmp_path / "earlier"), *options]
    assert main(call) == 0
    assert f"{out}: releases: 2, wheels: 5, groups: " in capsys.readouterr().out
    document = json.loads((out / GROUP / "demo" / "index.json").read_text())
    assert [bool(file["yanked"]) for file in document["files"]] == [True, True, True, False]
    # It can be offered again.
    (tmp_path / "yanked.yaml").write_text("schema: 1\n")
    assert main(call) == 0
    document = json.loads((out / GROUP / "demo" / "index.json").read_text())
    assert [bool(file["yanked"]) for file in document["files"]] == [True, False, True, False]
    empty = tmp_path / "earlier" / "v0.9"
    assert main(["index", "build", str(empty), *options]) == 2
    line = f"{empty}: expected a catalogue.json of a release, found none; download it"
    assert line in capsys.readouterr().err


def test_each_page_names_the_bundled_packages_for_those_who_must_ask_nobody_else(
    releases: list[Catalogue],
) -> None:
    found = pages(releases)
    for path in (f"{GROUP}/demo/index.json", "all/demo/index.json", "all/helper/index.json"):
        assert json.loads(found[path])["_torchwheel"] == {"bundled": ["helper"]}
    without = [dataclasses.replace(one, wheels=one.wheels[:2]) for one in releases]
    assert "_torchwheel" not in json.loads(pages(without)["all/demo/index.json"])
