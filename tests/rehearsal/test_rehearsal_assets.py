"""A release is filled as a draft and published complete, whatever the forge or the runner does."""

import functools
import hashlib
import http.server
import subprocess

import pytest

from loopback import serving
from rehearsal.forge import RequestFault, Token
from rehearsal.toy import forge_with_gh
from torchwheel.index.catalogue import Catalogue, CatalogueWheel, catalogue_text
from torchwheel.release import assets
from torchwheel.release.assets import ATTESTATION, check_published, dispatch, publish_assets
from torchwheel_runtime.console import Quiet
from torchwheel_runtime.errors import MalformedError, TorchwheelError, UsageError

WHEEL = "demo-1.0.0-py3-none-any.whl"


def catalogue(tag: str) -> bytes:
    """The catalogue of a release with one wheel."""
    digests = [hashlib.sha256(data).hexdigest() for data in (b"wheel", b"metadata")]
    wheel = CatalogueWheel(
        *(WHEEL, "demo", "1.0.0", ("py3-none-any",), digests[0], 5, digests[1], ">=3.10"),
        uploaded="2026-11-24T08:00:00Z",
        claims=None,
    )
    return catalogue_text(Catalogue("demo", tag, (wheel,))).encode()


FILES = {WHEEL: b"wheel", "catalogue.json": catalogue("v1.0.0"), "SHA256SUMS": b"sums"}


@pytest.fixture
def forge(tmp_path, monkeypatch):
    monkeypatch.setattr(assets, "_PAUSE", 0.0)
    monkeypatch.setattr(assets, "_FIRST_POLL", 0.05)
    with forge_with_gh(tmp_path / "forge") as (made, programs):
        made.tags.update(dict.fromkeys(["v1.0.0", "v1.1.0", "v1.1.0rc1"], "0" * 40))
        token = Token({"contents": "write", "actions": "write"}, 1, 1)
        monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
        monkeypatch.setenv("GH_TOKEN", made.issue(token))
        monkeypatch.setenv("REHEARSAL_FORGE", made.address)
        yield made


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "release"
    (made / "pypi").mkdir(parents=True)
    for name, data in FILES.items():
        (made / name).write_bytes(data)
    (tmp_path / "bundle.json").write_text("{}")
    return made


def publish(folder, tag="v1.0.0"):
    return publish_assets(tag, folder, folder.parent / "bundle.json", Quiet())


def digests(release):
    return {name: about["digest"] for name, about in release.assets.items()}


def whole(files=FILES):
    every = {**files, ATTESTATION: b"{}"}
    return {n: f"sha256:{hashlib.sha256(data).hexdigest()}" for n, data in every.items()}


def test_a_release_is_made_and_a_second_run_changes_nothing(forge, folder):
    assert publish(folder) == "v1.0.0: 4 assets published"
    (release,) = forge.releases
    assert digests(release) == whole()
    assert (release.draft, release.prerelease, release.latest) == (False, False, True)
    forge.requests.clear()
    publish(folder)
    assert [request for request in forge.requests if not request.startswith("GET ")] == []


def test_the_catalogue_is_the_last_file_to_come(forge, folder):
    publish(folder)
    uploads = [request for request in forge.requests if request.startswith("PUT ")]
    assert uploads[-1].endswith("/catalogue.json")


@pytest.mark.parametrize(
    ("request_", "kind"),
    [
        pytest.param(request, kind, marks=() if kind == usual else pytest.mark.nightly)
        for request, usual in (("PUT ", "500"), ("POST /releases", "lost"), ("PATCH ", "cut"))
        for kind in ("500", "cut", "lost")
    ],
)
def test_a_fault_of_the_forge_is_passed(forge, folder, kind, request_):
    forge.faults.append(RequestFault(kind, request_))
    publish(folder)
    (release,) = forge.releases
    assert digests(release) == whole()
    assert not release.draft


@pytest.mark.parametrize("kind", [pytest.param("500", marks=pytest.mark.nightly), "cut"])
def test_a_fault_that_stays_leaves_a_draft_which_the_next_run_completes(forge, folder, kind):
    forge.faults.append(RequestFault(kind, "PUT .*whl", 100))
    with pytest.raises(TorchwheelError):
        publish(folder)
    assert [release.draft for release in forge.releases] == [True]
    forge.faults.clear()
    publish(folder)
    (release,) = forge.releases
    assert digests(release) == whole()
    assert not release.draft


def test_what_is_published_never_gets_other_bytes(forge, folder):
    publish(folder)
    (folder / "SHA256SUMS").write_bytes(b"other")
    with pytest.raises(UsageError, match=r"^v1.0.0: SHA256SUMS: expected sha256 .* is published;"):
        publish(folder)
    assert digests(forge.releases[0]) == whole()


def test_a_draft_with_other_bytes_of_an_earlier_attempt_gets_those_of_this_one(forge, folder):
    forge.faults.append(RequestFault("500", "PATCH", 100))
    with pytest.raises(TorchwheelError):
        publish(folder)
    forge.faults.clear()
    other = FILES["catalogue.json"] + b"\n"
    (folder / "catalogue.json").write_bytes(other)
    publish(folder)
    assert digests(forge.releases[0]) == whole({**FILES, "catalogue.json": other})


def test_a_file_that_nobody_assembled_is_not_published(forge, folder):
    subprocess.run(["gh", "release", "create", "v1.0.0", "--draft"], check=True)
    (folder.parent / "evil.whl").write_bytes(b"evil")
    command = ["gh", "release", "upload", "v1.0.0", str(folder.parent / "evil.whl")]
    subprocess.run(command, check=True)
    with pytest.raises(UsageError, match=r"^v1.0.0: evil.whl: expected no such asset, found one"):
        publish(folder)
    assert forge.releases[0].draft


def test_a_file_that_was_deleted_by_hand_is_completed(forge, folder):
    publish(folder)
    subprocess.run(["gh", "release", "delete-asset", "v1.0.0", "SHA256SUMS", "--yes"], check=True)
    publish(folder)
    assert digests(forge.releases[0]) == whole()


def test_a_candidate_and_an_older_line_are_never_the_latest(forge, folder):
    for tag in ("v1.1.0rc1", "v1.1.0", "v1.0.0"):
        (folder / "catalogue.json").write_bytes(catalogue(tag))
        publish(folder, tag)
    found = {r.tag: (r.prerelease, r.latest) for r in forge.releases}
    assert found == {"v1.1.0rc1": (True, False), "v1.1.0": (False, True), "v1.0.0": (False, False)}


@pytest.mark.parametrize(
    ("tag", "says"),
    [("v2.0.0", "doesn't exist in the repo"), ("latest", 'expected e.g. "v1.0.0", found "latest"')],
)
def test_a_tag_that_is_none_is_a_line(forge, folder, tag, says):
    (folder / "catalogue.json").write_bytes(catalogue(tag))
    with pytest.raises(TorchwheelError, match=says) as caught:
        publish(folder, tag)
    assert len(str(caught.value).splitlines()) == 1
    assert forge.releases == []


def test_another_tag_than_that_of_the_catalogue_is_a_line(forge, folder):
    """Of which an index makes links: to files that are nowhere."""
    with pytest.raises(
        UsageError, match=r'expected tag "v1.1.0", found "v1.0.0"; assemble the rel'
    ):
        publish(folder, "v1.1.0")
    assert forge.releases == []


def test_a_catalogue_that_no_index_can_read_is_a_line(forge, folder):
    (folder / "catalogue.json").write_text('{"schema": 1, "tag": "v1.0.0"}')
    with pytest.raises(MalformedError, match=r'catalogue.json: expected key "project", found none'):
        publish(folder)
    assert forge.releases == []


def test_a_folder_that_is_no_release_is_a_line(forge, tmp_path):
    with pytest.raises(UsageError, match=r"found no catalogue.json; assemble it first"):
        publish_assets("v1.0.0", tmp_path, None, Quiet())


def test_what_is_public_is_compared(forge, folder):
    with pytest.raises(TorchwheelError, match="expected a public release, found none"):
        check_published("v1.0.0", folder, Quiet())
    publish(folder)
    assert check_published("v1.0.0", folder, Quiet()).startswith("v1.0.0: 3 assets")
    (folder / "SHA256SUMS").write_bytes(b"other")
    with pytest.raises(TorchwheelError, match="SHA256SUMS: expected sha256"):
        check_published("v1.0.0", folder, Quiet())


@pytest.fixture
def pypi(tmp_path, monkeypatch):
    """The folder of an index beside one without the project."""
    root = tmp_path / "index"
    (root / "none").mkdir(parents=True)
    handler = functools.partial(_Quiet, directory=root)
    with serving(handler) as address:
        monkeypatch.setenv("PIP_INDEX_URL", f"{address}/none")
        monkeypatch.setenv("PIP_EXTRA_INDEX_URL", f"{address}/simple/")
        yield root / "simple"


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        """Print nothing."""


def offer(index, files):
    (index / "demo").mkdir(parents=True, exist_ok=True)
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    links = [
        f'<a href="../f/{name}#sha256={digest}">{name}</a>' for name, digest in digests.items()
    ]
    (index / "demo" / "index.html").write_text("".join(links))


def test_every_file_of_pypi_is_compared(forge, folder, pypi):
    """Of two wheels of a version, and an sdist, pip would look at one."""
    publish(folder)
    other = "demo-1.0.0-py3-none-manylinux_2_28_x86_64.whl"
    files = {WHEEL: b"wheel", other: b"universal", "demo-1.0.0.tar.gz": b"sdist"}
    for name, data in files.items():
        (folder / "pypi" / name).write_bytes(data)
    assert check_published("v1.0.0", folder, Quiet()).startswith("v1.0.0: 3 assets are")
    with pytest.raises(TorchwheelError, match=f"{other}: expected it on PyPI, found none; upload"):
        check_published("v1.0.0", folder, Quiet(), pypi=True)
    offer(pypi, files)
    says = check_published("v1.0.0", folder, Quiet(), pypi=True)
    assert says.startswith("v1.0.0: 3 assets and 3 files of PyPI are those of ")
    for name in files:
        offer(pypi, files | {name: b"another"})
        with pytest.raises(TorchwheelError, match=f"^{name}: expected sha256 .* on PyPI, found"):
            check_published("v1.0.0", folder, Quiet(), pypi=True)
    offer(pypi, {key: data for key, data in files.items() if key != other})
    with pytest.raises(TorchwheelError, match=f"^{other}: expected it on PyPI, found none"):
        check_published("v1.0.0", folder, Quiet(), pypi=True)


def run_workflow(forge, conclusions):
    """Let each start of a workflow give a run with the next conclusion."""

    def start(workflow, ref, inputs):
        title = f"index {inputs['reason']}"
        row = {"workflow": workflow, "databaseId": forge.number(), "displayTitle": title}
        forge.runs.append({**row, "conclusion": conclusions.pop(0)})

    forge.dispatch = start


@pytest.mark.parametrize(
    ("conclusions", "starts"), [(["success"], 1), (["cancelled", "success"], 2)]
)
def test_a_workflow_is_started_and_waited_for(forge, conclusions, starts):
    run_workflow(forge, conclusions)
    assert dispatch("index.yml", "main", "v1.0.0 7-1", Quiet()) == "index.yml: done on main"
    assert len(forge.runs) == starts
    assert dispatch("index.yml", "main", "v1.0.0 7-1", Quiet())
    assert len(forge.runs) == starts, "a run of this reason that is done is enough"


def test_a_workflow_that_fails_is_a_line(forge):
    run_workflow(forge, ["failure"])
    with pytest.raises(TorchwheelError, match=r"^index.yml: expected success, found failure; look"):
        dispatch("index.yml", "main", "v1.0.0 7-1", Quiet())
