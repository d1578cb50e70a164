"""With --commit a release takes only files that the right workflow signed at that commit."""

import dataclasses
import datetime
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import release_artifacts
from release_artifacts import MATRIX, NATIVE, Artifacts, commit

import signing
from torchwheel.cli import main
from torchwheel.evidence.bundles import open_verifier
from torchwheel.index.catalogue import FILE, read_catalogue
from torchwheel.release.assemble import Signatures
from torchwheel_runtime.errors import TorchwheelError, UsageError
from torchwheel_runtime.files import sha256
from wheelmaker import make_wheel

REPOSITORY = "https://github.com/owner/demo"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
EVIDENCE = f"""\
evidence:
  repository: {REPOSITORY}
  workflows: {{build: .github/workflows/wheels.yml, smoke: .github/workflows/smoke.yml,
    release: .github/workflows/release.yml}}
"""
BUILD = signing.Job(REPOSITORY, ".github/workflows/wheels.yml", COMMIT)
SMOKE = dataclasses.replace(BUILD, workflow=".github/workflows/smoke.yml")
CUDA = "demo-1.0.0+cu130-py3-none-manylinux_2_28_x86_64.whl"

pytestmark = pytest.mark.usefixtures("green_gates")


def files_of(artifact: Path) -> list[Path]:
    return sorted(
        path for path in artifact.rglob("*") if path.is_file() and path.parent.name != "evidence"
    )


def sign(root: signing.Root, artifact: Path, job: signing.Job) -> Path:
    """Sign all files of an artifact, as the last step of its job does."""
    bundle = artifact / "evidence" / f"{artifact.name.removeprefix('wheel-')}.sigstore.json"
    return signing.sign_files(root, job, files_of(artifact), bundle)


def sign_all(root: signing.Root, artifacts: Artifacts) -> None:
    for artifact in sorted(artifacts.root.iterdir()):
        sign(root, artifact, SMOKE if artifact.name.startswith("smoke-") else BUILD)


@pytest.fixture
def signed(artifacts, root) -> Artifacts:
    """A release without a fault, signed."""
    artifacts.matrix.write_text(MATRIX + EVIDENCE)
    # No two runs write the same record.
    artifacts.smoke("pure", date="2026-11-21T00:00:00+00:00")
    sign_all(root, artifacts)
    return artifacts


def run(
    artifacts: Artifacts, root: signing.Root, out: Path, earlier: Path | None = None, **options
) -> str:
    signatures = Signatures(COMMIT, open_verifier(str(root.trusted_root)).read, **options)
    return release_artifacts.run(artifacts, out, earlier=earlier, signatures=signatures)


def refused(artifacts: Artifacts, root: signing.Root, out: Path) -> list[str]:
    with pytest.raises(TorchwheelError) as caught:
        run(artifacts, root, out)
    assert not out.exists()
    head, *lines = str(caught.value).splitlines()
    assert head == f"nothing is written to {out}; faults: {len(lines)}"
    return [line.replace(f"{artifacts.root}/", "") for line in lines]


def test_a_signed_release(signed, root, out):
    assert run(signed, root, out).splitlines()[-1] == "signed: 8 files, by 4 bundles"
    assert (out / CUDA).is_file()


def test_a_wheel_that_was_signed_alone_has_its_provenance(signed, root, out):
    """An index links it (PEP 740)."""
    cuda = signed.root / "wheel-cu130-stable"
    others = [path for path in files_of(cuda) if path.suffix != ".whl"]
    signing.sign_files(root, BUILD, others, cuda / "evidence" / "cu130-stable.sigstore.json")
    bundle = cuda / "evidence" / "cu130-stable.wheel.sigstore.json"
    signing.sign_files(root, BUILD, [cuda / CUDA], bundle)
    assert "signed: 8 files, by 5 bundles" in run(signed, root, out)
    listed = {wheel.file: wheel.provenance for wheel in read_catalogue(out / FILE).wheels}
    assert listed == {CUDA: f"{CUDA}.provenance", "demo-1.0.0-py3-none-any.whl": None}
    (made,) = out.glob("*.provenance")
    assert f"{sha256(made)}  {CUDA}.provenance\n" in (out / "SHA256SUMS").read_text()
    (of,) = json.loads(made.read_text())["attestation_bundles"]
    envelope = json.loads(bundle.read_text())["dsseEnvelope"]
    assert of["attestations"][0]["envelope"]["statement"] == envelope["payload"]


def forge(artifacts: Artifacts) -> None:
    """Another wheel of the same name, with a build record and smoke records that fit it."""
    files = {"demo/__init__.py": b"answer = 42\n", "demo/py.typed": b"gotcha"}
    artifacts.add(
        "cu130-stable", make_wheel(artifacts.root / "wheel-cu130-stable", **NATIVE, files=files)
    )
    artifacts.smoke("cu130-stable")


def test_a_wheel_and_its_records_forged_together(signed, root, out):
    """They agree with each other, so the rules take them: without signatures they are published."""
    forge(signed)
    own = release_artifacts.run(signed, out.with_name("unsigned"))
    assert "cu130-stable     3 KiB   9 ok  NVIDIA H200" in own
    lines = refused(signed, root, out)
    assert [line.partition(":")[0] for line in lines] == [
        f"wheel-cu130-stable/{CUDA}",
        "wheel-cu130-stable/.torchwheel/cu130-stable.json",
        "smoke-cu130-stable/smoke/cu130-stable.json",
        "wheel-cu130-stable/smoke/cu130-stable.json",
    ]
    assert all(": expected sha256 " in line and ", found " in line for line in lines)


def test_the_forger_signs_with_a_key_of_their_own(signed, out, root, tmp_path):
    forge(signed)
    theirs = signing.open_root(tmp_path / "theirs")
    sign_all(theirs, signed)
    lines = refused(signed, root, out)
    bundles = [line for line in lines if ".sigstore.json: does not verify: " in line]
    files = [line for line in lines if ": expected a signature, found none; " in line]
    assert (len(bundles), len(files), len(lines)) == (4, 8, 12)


def test_a_smoke_job_cannot_replace_the_wheel(signed, out, root):
    """What runs on a GPU machine of one's own may sign what it saw, and no wheel."""
    forge(signed)
    for artifact in ("wheel-cu130-stable", "smoke-cu130-stable"):
        sign(root, signed.root / artifact, SMOKE)
    lines = refused(signed, root, out)
    assert lines == [
        f"wheel-cu130-stable/{name}: expected a signature of build (.github/workflows/wheels.yml), "
        f"found one of smoke (.github/workflows/smoke.yml): {signed.root}/wheel-cu130-stable/"
        "evidence/cu130-stable.sigstore.json".replace(f"{signed.root}/", "")
        for name in (CUDA, ".torchwheel/cu130-stable.json")
    ]


def test_another_job_signed_an_artifact(signed, out, root):
    """What a job must be is in tests/unit/evidence."""
    sign(root, signed.root / "wheel-pure", dataclasses.replace(BUILD, commit="f" * 40))
    bundle, *files = refused(signed, root, out)
    says = f"expected commit {COMMIT}, found {'f' * 40}"
    assert bundle.startswith(f"wheel-pure/evidence/pure.sigstore.json: {says}")
    assert [line.partition(":")[0] for line in files] == [
        "wheel-pure/demo-1.0.0-py3-none-any.whl",
        "wheel-pure/.torchwheel/pure.json",
        "wheel-pure/smoke/pure.json",
    ]


def test_an_artifact_without_a_bundle(signed, out, root):
    (signed.root / "smoke-pure" / "evidence" / "smoke-pure.sigstore.json").unlink()
    (line,) = refused(signed, root, out)
    assert line == (
        "smoke-pure/smoke/pure.json: expected a signature, found none; the job that makes it must "
        "attest it, and the bundle must come with it"
    )


def test_a_file_that_was_added_to_an_artifact(signed, out, root):
    make_wheel(signed.root / "wheel-pure", name="requests")
    (line,) = refused(signed, root, out)
    assert line.startswith("wheel-pure/requests-1.0.0-py3-none-any.whl: expected a signature,")


def test_nothing_unsigned_is_read(signed, out, root, monkeypatch):
    """Of a file that nobody signed only the hash is taken."""
    from torchwheel.release import artifacts as module
    from torchwheel.release import assemble as command

    forge(signed)
    monkeypatch.setattr(module, "read_json", lambda *_, **__: pytest.fail("read a record"))
    monkeypatch.setattr(command, "read_wheel", lambda *_: pytest.fail("read a wheel"))
    assert len(refused(signed, root, out)) == 4


def test_a_bundle_that_is_a_link(signed, out, root):
    bundle = signed.root / "wheel-pure" / "evidence" / "pure.sigstore.json"
    target = bundle.rename(bundle.with_name("elsewhere"))
    bundle.symlink_to(target)
    lines = refused(signed, root, out)
    assert lines[0] == "wheel-pure/evidence/pure.sigstore.json: is no plain file"
    assert len(lines) == 4


def test_the_repository_of_the_call_is_the_one_that_counts(signed, out, root):
    """A fork needs no edit: its workflow names its own repository."""
    text = signed.matrix.read_text().replace(f"  repository: {REPOSITORY}\n", "")
    signed.matrix.write_text(text)
    assert "signed: 8 files" in run(signed, root, out, repository="owner/demo")
    with pytest.raises(UsageError) as caught:
        run(signed, root, out)
    assert str(caught.value) == (
        f"{signed.matrix}: evidence: expected a repository, found none; name it there or with "
        "--repository https://github.com/OWNER/NAME"
    )


def test_a_matrix_without_evidence(artifacts, out, root):
    with pytest.raises(UsageError) as caught:
        run(artifacts, root, out)
    assert str(caught.value) == (
        f"{artifacts.matrix}: expected a section `evidence`, found none; name there who signs"
    )


def test_the_command_line(signed, out, root, capsys):
    call = ["assemble", "--matrix", str(signed.matrix), "--out", str(out), str(signed.root)]
    trust = ["--trusted-root", str(root.trusted_root)]
    assert main([*call, "--commit", COMMIT, *trust]) == 0
    assert "\nsigned: 8 files, by 4 bundles\n" in capsys.readouterr().out
    assert main([*call, "--commit", "v1.0.0", *trust]) == 2
    says = 'expected 40 hexadecimal digits, found "v1.0.0"'
    assert capsys.readouterr().err == f"torchwheel: --commit: {says}\n"


RELEASE = dataclasses.replace(BUILD, workflow=".github/workflows/release.yml", commit="e" * 40)


@pytest.fixture
def earlier(signed, root, tmp_path) -> Path:
    """The catalogue of an earlier release beside its attestation, as `nox -s earlier` has them."""
    folder = tmp_path / "earlier"
    release_artifacts.run(signed, tmp_path / "made")
    (folder / "v0.9").mkdir(parents=True)
    catalogue = (tmp_path / "made" / "catalogue.json").rename(folder / "v0.9" / "catalogue.json")
    signing.sign_files(root, RELEASE, [catalogue], catalogue.with_name("attestation.sigstore.json"))
    return folder


def forged_catalogue(catalogue: Path, root: signing.Root) -> None:
    catalogue.write_text(catalogue.read_text().replace("demo-1.0.0", "demo-9.9.9"))


def no_bundle(catalogue: Path, root: signing.Root) -> None:
    catalogue.with_name("attestation.sigstore.json").unlink()


def signed_by(job: signing.Job, **changes: str) -> Callable[[Path, signing.Root], object]:
    def damage(catalogue: Path, root: signing.Root) -> None:
        bundle = catalogue.with_name("attestation.sigstore.json")
        signing.sign_files(root, dataclasses.replace(job, **changes), [catalogue], bundle)

    return damage


OTHER_REF = "attestation.sigstore.json: expected ref refs/tags/VERSION, found refs"
CATALOGUES = {
    "forged": (forged_catalogue, "catalogue.json: expected sha256 "),
    "without a bundle": (
        no_bundle,
        "catalogue.json: expected a signature, found no attestation.sigstore.json beside it; up",
    ),
    "a branch's": (signed_by(RELEASE, ref="refs/heads/evil"), f"{OTHER_REF}/heads/evil; if the"),
    "another tag's": (
        signed_by(RELEASE, ref="refs/tags/nightly"),
        f"{OTHER_REF}/tags/nightly; if the",
    ),
    "a build's": (
        signed_by(BUILD),
        "catalogue.json: expected a signature of release (.github/workflows/release.yml), found ",
    ),
}


def test_a_signed_catalogue_of_an_earlier_release(signed, root, out, earlier, tmp_path, capsys):
    assert "signed: 8 files" in run(signed, root, out, earlier)
    assert index_build(signed, root, earlier, tmp_path / "index") == 0
    assert "releases: 1" in capsys.readouterr().out


@pytest.mark.parametrize(("damage", "says"), CATALOGUES.values(), ids=CATALOGUES)
def test_a_catalogue_that_nobody_signed(signed, root, out, earlier, tmp_path, capsys, damage, says):
    """Neither the next release nor the index believes it."""
    damage(earlier / "v0.9" / "catalogue.json", root)
    with pytest.raises(TorchwheelError) as caught:
        run(signed, root, out, earlier)
    (line,) = str(caught.value).replace(f"{earlier}/v0.9/", "").splitlines()
    assert not out.exists()
    assert line.startswith(says)
    assert index_build(signed, root, earlier, tmp_path / "index") == 1
    assert capsys.readouterr().err == f"torchwheel: {caught.value}\n"
    assert not (tmp_path / "index").exists()


OLD = "https://github.com/owner/olddemo"
PUBLISH = ".github/workflows/publish.yml"


@pytest.mark.parametrize(
    ("change", "listed"),
    [
        ({"repository": OLD}, f"{{repository: {OLD}}}"),
        ({"workflow": PUBLISH}, f"{{workflow: {PUBLISH}}}"),
        ({"repository": OLD, "workflow": PUBLISH}, f"{{repository: {OLD}, workflow: {PUBLISH}}}"),
    ],
    ids=["repository", "workflow", "both"],
)
def test_a_project_that_moved(signed, root, out, earlier, tmp_path, change, listed):
    """The matrix names who signed before; another release has a signature of today."""
    catalogue = earlier / "v0.9" / "catalogue.json"
    job = dataclasses.replace(RELEASE, **change)
    bundle = catalogue.with_name("attestation.sigstore.json")
    signing.sign_files(root, job, [catalogue], bundle)
    with pytest.raises(
        TorchwheelError, match=r"^\S+: expected .*list the signer under evidence\.ea"
    ):
        run(signed, root, out, earlier)
    signed.matrix.write_text(signed.matrix.read_text() + f"  earlier: [{listed}]\n")
    assert "signed: 8 files" in run(signed, root, out, earlier)
    assert index_build(signed, root, earlier, tmp_path / "index") == 0
    signing.sign_files(root, dataclasses.replace(job, ref="refs/heads/evil"), [catalogue], bundle)
    with pytest.raises(TorchwheelError, match="expected ref refs/tags"):
        run(signed, root, out, earlier)


def test_a_catalogue_that_was_published_unsigned(signed, root, out, earlier, tmp_path):
    """Its hash in the matrix lets later releases go on; another release's bundle is not blamed."""
    catalogue = earlier / "v0.9" / "catalogue.json"
    no_bundle(catalogue, root)
    other = earlier / "v0.8" / "catalogue.json"
    other.parent.mkdir()
    other.write_text(catalogue.read_text())
    signing.sign_files(root, RELEASE, [other], other.with_name("attestation.sigstore.json"))
    (other.parent / "mine.sigstore.json").write_text("{}")
    catalogue.write_text(catalogue.read_text() + "\n")
    with pytest.raises(TorchwheelError) as caught:
        run(signed, root, out, earlier)
    assert str(caught.value) == (
        f"{catalogue}: expected a signature, found no attestation.sigstore.json beside it; upload "
        f"it to that release, or write {sha256(catalogue)} under evidence.unsigned in the matrix"
    )
    text = signed.matrix.read_text()
    signed.matrix.write_text(f"{text}  unsigned: [{sha256(catalogue)}]\n")
    assert "signed: 8 files" in run(signed, root, out, earlier)
    catalogue.write_text(catalogue.read_text() + "\n")
    with pytest.raises(TorchwheelError, match="found no attestation"):
        run(signed, root, out, earlier)


def test_assets_without_an_attestation(signed, out, capsys):
    """They would be refused by every later release."""
    call = ["assets", "v1.0.0", str(out), "--matrix", str(signed.matrix)]
    assert main(call) == 2
    assert "expected --attestation, as " in capsys.readouterr().err
    assert main([*call, "--unsigned"]) == 2
    assert "expected a release, found no catalogue.json" in capsys.readouterr().err


def index_build(signed: Artifacts, root: signing.Root, earlier: Path, out: Path) -> int:
    yanked = out.with_name("yanked.yaml")
    yanked.write_text("schema: 1\n")
    return main(
        [
            *("index", "build", str(earlier), "--out", str(out), "--matrix", str(signed.matrix)),
            *("--yanked", str(yanked), "--address", "https://x.test/{tag}"),
            *("--repository", "owner/demo", "--trusted-root", str(root.trusted_root)),
        ]
    )


def test_a_build_job_that_says_it_ran_on_a_gpu(signed, root, out):
    """A build job has no GPU; only those that try wheels may say what ran on one."""
    smoke = signed.root / "smoke-cu130-stable"
    wheel = signed.root / "wheel-cu130-stable"
    record = wheel / "smoke" / "gpu.json"
    record.parent.mkdir(exist_ok=True)
    (smoke / "smoke" / "cu130-stable.json").rename(record)
    for bundle in (smoke / "evidence").iterdir():
        bundle.unlink()
    sign(root, wheel, BUILD)
    assert refused(signed, root, out) == [
        "wheel-cu130-stable/smoke/gpu.json: tests on a GPU (NVIDIA H200): expected a signature of "
        "smoke (.github/workflows/smoke.yml), found one of build (.github/workflows/wheels.yml)"
    ]


COMMITTED = datetime.datetime(2026, 11, 20, 12, tzinfo=datetime.timezone.utc)
SIGNED = COMMITTED + datetime.timedelta(hours=1)


@pytest.mark.parametrize(
    ("date", "says"),
    [
        (COMMITTED - datetime.timedelta(minutes=4), ""),
        (SIGNED + datetime.timedelta(minutes=4), ""),
        (COMMITTED - datetime.timedelta(minutes=6), "before the commit of 2026-11-20T12:00:00Z"),
        (SIGNED + datetime.timedelta(minutes=6), "later than its signature, 2026-11-20T13:00:00Z"),
    ],
)
def test_the_job_of_a_record_refuses_its_date_as_assemble_would(
    artifacts, root, monkeypatch, capsys, date, says
):
    """Else `assemble` fails in its place, and the jobs that failed are repeated in vain."""
    monkeypatch.setenv("TORCHWHEEL_TRUSTED_ROOT", str(root.trusted_root))
    commit(artifacts, COMMITTED.isoformat())
    record = artifacts.smoke_file("pure")
    artifacts.smoke("pure", date=date.isoformat())
    bundle = record.with_name("pure.sigstore.json")
    signing.sign_files(root, SMOKE, [record], bundle, at=SIGNED)
    sources = artifacts.matrix.parent
    call = ["verify", str(record), "--repository", "owner/demo", "--sources", str(sources)]
    call += ["--workflow", SMOKE.workflow]
    status = main(call)
    (line,) = [line for line in capsys.readouterr().out.splitlines() if " date  " in line]
    if says:
        advice = "set the clock of that machine, and smoke-test this wheel again"
        says = f"was smoke-tested at {date.isoformat()}, {says}; {advice}"
    assert (status, line.split(maxsplit=2)) == (
        int(bool(says)),
        ["FAILED" if says else "ok", "date", says or date.isoformat()],
    )


def test_only_a_record_of_a_smoke_test_has_a_date(artifacts, root, monkeypatch, capsys):
    monkeypatch.setenv("TORCHWHEEL_TRUSTED_ROOT", str(root.trusted_root))
    record = artifacts.build_file("pure")
    signing.sign_files(root, BUILD, [record], record.with_name("pure.sigstore.json"))
    assert main(["verify", str(record), "--repository", "owner/demo", "--sources", "."]) == 1
    assert capsys.readouterr().err.startswith(f"torchwheel: {record}: not a smoke record: ")
