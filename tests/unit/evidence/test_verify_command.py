"""`torchwheel verify`: one line a check, exit status 0 only if all hold."""

import dataclasses
import json
import re
from pathlib import Path

import pytest
from evidence_cases import BUILD, COMMIT, OTHER_COMMIT, REPOSITORY, WORKFLOWS

import signing
from torchwheel.cli import main
from torchwheel.evidence import policy
from torchwheel.scaffold import templates
from torchwheel_runtime.files import sha256

RELEASE = dataclasses.replace(BUILD, workflow=WORKFLOWS["release"])
SIGNER = Path(signing.__file__)


@pytest.fixture
def released(wheel, root, monkeypatch) -> Path:
    """A wheel beside the bundle of its release."""
    monkeypatch.setenv("TORCHWHEEL_TRUSTED_ROOT", str(root.trusted_root))
    signing.sign_files(root, RELEASE, [wheel], wheel.with_name("release.sigstore.json"))
    return wheel


def verify(wheel: Path, *options: str, capsys) -> tuple[int, list[str]]:
    status = main(["verify", str(wheel), "--repository", "owner/demo", *options])
    out, err = capsys.readouterr()
    assert not err
    name, *lines = out.splitlines()
    assert name == wheel.name
    return status, lines


def test_who_made_it(released, capsys):
    status, lines = verify(released, capsys=capsys)
    assert status == 0
    assert [line.split()[:2] for line in lines] == [
        ["ok", name]
        for name in (
            *("sha256", "signature", "issuer", "repository", "commit", "ref", "workflow", "runner"),
            "run",
        )
    ]
    assert lines[0] == f"ok      sha256      {sha256(released)}"
    assert lines[1].startswith(
        f"ok      signature   {released.parent}/release.sigstore.json, signed"
    )
    assert lines[2:] == [
        f"ok      issuer      {signing.GITHUB}",
        f"ok      repository  {REPOSITORY}",
        f"ok      commit      {COMMIT}",
        "ok      ref         refs/tags/v1.0.0",
        f"ok      workflow    {WORKFLOWS['release']}",
        "ok      runner      github-hosted",
        f"ok      run         {REPOSITORY}/actions/runs/1/attempts/1, on a github-hosted runner",
    ]


def failed(status: int, lines: list[str]) -> list[str]:
    assert status == 1
    return [line.removeprefix("FAILED  ") for line in lines if not line.startswith("ok ")]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--commit", OTHER_COMMIT], f"commit      expected commit {OTHER_COMMIT}, found {COMMIT}"),
        (["--ref", "refs/heads/x"], "ref         expected ref refs/heads/x, found refs/tags/"),
        (["--workflow", "x.yml"], "workflow    expected workflow x.yml, found .github/workflows/r"),
        (["--issuer", "https://x.y"], "issuer      expected issuer https://x.y, found https://t"),
        (["--sha256", "0" * 64], f'sha256      expected "{"0" * 60}…" of --sha256, found'),
    ],
)
def test_what_is_not_as_expected(released, capsys, options, says):
    (line,) = failed(*verify(released, *options, capsys=capsys))
    assert line.startswith(says)


def test_another_repository(released, capsys):
    """The last --repository counts; a wheel of somebody else is properly signed by them."""
    lines = failed(*verify(released, "--repository", "other/demo", capsys=capsys))
    assert lines == [
        f"repository  expected repository https://github.com/other/demo, found {REPOSITORY}",
    ]


DEMO = "demo-1.0.0-py3-none-any.whl"
BELIEVED = [
    (DEMO, {}, ()),
    (DEMO, {"workflow": WORKFLOWS["build"]}, ()),
    (DEMO, {"ref": "refs/tags/1.0.0"}, ()),
    ("demo-1.0.0+cu130-py3-none-any.whl", {}, ()),
    ("demo-1.0.0rc1-py3-none-any.whl", {"ref": "refs/tags/v1.0.0-rc1"}, ()),
    ("demo-1.0.0.tar.gz", {}, ()),
    ("catalogue.json", {"ref": "refs/tags/v0.9.0"}, ()),
    (DEMO, {"ref": "refs/heads/main"}, ("--ref", "*")),
    (DEMO, {"workflow": "x.yml"}, ("--workflow", "x.yml")),
    (DEMO, {"runner": "self-hosted"}, ("--self-hosted",)),
    ("helper-2.0-py3-none-any.whl", {}, ("--ref", "refs/tags/v1.0.0")),  # bundled
]
TWO = f"workflow    expected workflow {WORKFLOWS['build']} or {WORKFLOWS['release']}, found"
HOSTED = "expected runner github-hosted"
REFUSED = [
    (DEMO, {"workflow": WORKFLOWS["smoke"]}, f"{TWO} {WORKFLOWS['smoke']}"),
    (DEMO, {"workflow": "anything.yml"}, f"{TWO} anything.yml"),
    (DEMO, {"runner": "self-hosted"}, f"runner      {HOSTED}, found self-hosted"),
    *(
        (name, {"ref": ref}, f"ref         expected ref refs/tags/{expected}, found {ref}")
        for name, ref, expected in (
            (DEMO, "refs/tags/nightly", "v1.0.0"),
            (DEMO, "refs/tags/v0.9.0", "v1.0.0"),
            (DEMO, "refs/tags/v1.0.0rc1", "v1.0.0"),
            ("demo-1.0.0rc1-py3-none-any.whl", "refs/tags/v1.0.0", "v1.0.0rc1"),
            ("demo-1.0.0+cu130-py3-none-any.whl", "refs/tags/v1.0.0+cu130", "v1.0.0"),
            (DEMO, "refs/tags/V1.0.0", "v1.0.0"),  # v* protects no such
            (DEMO, "refs/tags/x/v1.0.0", "v1.0.0"),
            (DEMO, "refs/heads/v1.0.0", "v1.0.0"),
            (DEMO, "refs/tags/v" + "1" * 5000, "v1.0.0"),
            ("demo-1.0.0.tar.gz", "refs/tags/v0.9.0", "v1.0.0"),
            ("helper-2.0-py3-none-any.whl", "refs/tags/v1.0.0", "v2.0"),
            ("catalogue.json", "refs/tags/nightly", "VERSION"),
            ("catalogue.json", "refs/heads/main", "VERSION"),
        )
    ),
]


def signed_by(root, folder, name, changes):
    """A file, and beside it the bundle of a release's job that is changed."""
    file = folder / name
    file.write_bytes(b"a file")
    job = dataclasses.replace(RELEASE, **changes)
    signing.sign_files(root, job, [file], folder / "release.sigstore.json")
    return file


@pytest.mark.parametrize(("name", "changes", "options"), BELIEVED)
def test_the_right_signer_is_believed(root, tmp_path, capsys, name, changes, options):
    file = signed_by(root, tmp_path, name, changes)
    options = ("--trusted-root", str(root.trusted_root), *options)
    assert verify(file, *options, capsys=capsys)[0] == 0


@pytest.mark.parametrize(("name", "changes", "says"), REFUSED)
def test_another_signer_of_the_repository_is_not(root, tmp_path, capsys, name, changes, says):
    file = signed_by(root, tmp_path, name, changes)
    options = ("--trusted-root", str(root.trusted_root))
    (line,) = failed(*verify(file, *options, capsys=capsys))
    assert line == says[: len(line)]
    assert len(line) > 50


def test_the_workflows_are_those_of_a_new_project():
    """As the matrices name them that `torchwheel new` and `adopt` write."""
    for folder in ("new", "adopted"):
        text = (
            Path(templates.__file__).parent / "templates" / folder / "matrix.yaml.in"
        ).read_text()
        named = re.findall(r"^    (build|release): (\S+\.yml)", text, re.MULTILINE)
        assert dict(named) == policy.WORKFLOWS


def test_several_files_and_bundles(released, root, tmp_path, capsys):
    """As a job verifies what other jobs of its run have made."""
    folder = tmp_path / "kernels"
    manifests = [folder / name / "manifest.json" for name in ("one", "two")]
    bundles = []
    for manifest in manifests:
        manifest.parent.mkdir(parents=True)
        manifest.write_text(manifest.parent.name)
        bundles.append(folder / f"{manifest.parent.name}.sigstore.json")
        job = dataclasses.replace(BUILD, ref="refs/heads/main")
        signing.sign_files(root, job, [manifest], bundles[-1])
    who = ["--repository", "owner/demo", "--commit", COMMIT, "--ref", "*"]
    who += ["--workflow", WORKFLOWS["build"]]
    call = ["verify", *map(str, manifests), *who, "--bundle", *map(str, bundles)]
    assert main(call) == 0
    assert capsys.readouterr().out.count(f"ok      workflow    {WORKFLOWS['build']}\n") == 2
    manifests[1].write_text("another")
    assert main(call) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("FAILED")] == [
        "FAILED  signature   expected an attestation of manifest.json with this hash, found none"
    ]


def test_all_files_of_a_folder_are_verified(released, root, capsys):
    """As of the artifact that another job has uploaded."""
    bundled = released.parent / "bundled" / "helper-1.0.0-py3-none-any.whl"
    bundled.parent.mkdir()
    bundled.write_text("bundled")
    bundle = released.with_name("release.sigstore.json")
    signing.sign_files(root, RELEASE, [released, bundled], bundle)
    call = ["verify", str(released.parent), "--repository", "owner/demo", "--bundle", str(bundle)]
    assert main(call) == 0
    assert capsys.readouterr().out.count("ok      signature") == 2
    (bundled.with_name("evil.whl")).write_text("evil")
    assert main(call) == 1
    assert "FAILED  signature   expected an attestation of evil.whl" in capsys.readouterr().out
    for file in (released, bundled, bundled.with_name("evil.whl")):
        file.unlink()
    assert main(call) == 1
    says = "expected files, found none; name another"
    assert capsys.readouterr().err == f"torchwheel: {released.parent}: {says}\n"


@pytest.mark.parametrize("damaged", ["bundle", "wheel"])
def test_no_bundle_of_this_wheel(released, capsys, damaged):
    if damaged == "bundle":
        released.with_name("release.sigstore.json").unlink()
    else:
        released.write_bytes(b"changed")
    (line,) = failed(*verify(released, capsys=capsys))
    says = f"signature   expected an attestation of {released.name} with this hash, found none"
    assert line == says


def test_a_malformed_bundle(released, capsys):
    bundle = released.with_name("bad.json")
    bundle.write_text("{")
    (line,) = failed(*verify(released, "--bundle", str(bundle), capsys=capsys))
    assert f"found none; {bundle}: not a sigstore bundle: expected JSON" in line


def test_the_best_of_several_attestations(released, root, capsys):
    """Built in one job and published by another, a wheel is attested twice."""
    folder = released.with_name("evidence")
    signing.sign_files(root, BUILD, [released], folder / "pure.sigstore.json")
    for role in ("build", "release"):
        status, lines = verify(released, "--workflow", WORKFLOWS[role], capsys=capsys)
        assert status == 0
        assert f"ok      workflow    {WORKFLOWS[role]}" in lines


def test_sums_and_catalogue(released, capsys):
    sums = released.with_name("SHA256SUMS")
    sums.write_text(f"{sha256(released)}  {released.name}\n{'1' * 64}  other.whl\n")
    status, lines = verify(released, "--sums", str(sums), capsys=capsys)
    assert (status, lines[0]) == (0, f"ok      sha256      {sha256(released)}, as {sums} says")
    entry = {"file": released.name, "sha256": "2" * 64, "size": 7}
    catalogue = released.with_name("catalogue.json")
    catalogue.write_text(json.dumps({"schema": 1, "wheels": [entry]}))
    (line,) = failed(*verify(released, "--sums", str(catalogue), capsys=capsys))
    assert line.startswith(f'sha256      expected "{"2" * 60}…" of {catalogue}, found ')
    sums.write_text("")
    (line,) = failed(*verify(released, "--sums", str(sums), capsys=capsys))
    assert line == f"sha256      expected {released.name} in {sums}, found no such name"


@pytest.mark.parametrize("content", [b"x\n", b"\xff", b"0" * 64])
def test_malformed_sums(released, capsys, content):
    sums = released.with_name("SHA256SUMS")
    sums.write_bytes(content)
    call = ["verify", str(released), "--repository", "owner/demo", "--sums", str(sums)]
    assert main(call) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"torchwheel: {sums}: ")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--repository", "demo"], "--repository: expected OWNER/NAME or an address such as http"),
        (["--commit", "main"], '--commit: expected 40 hexadecimal digits, found "main"'),
    ],
)
def test_a_wrong_call(released, capsys, options, says):
    assert main(["verify", str(released), "--repository", "owner/demo", *options]) == 2
    assert capsys.readouterr().err.startswith(f"torchwheel: {says}")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "expected a file or folder, found none; check the path"),
        ("{}", "expected a sigstore trusted root, found mediaType: Field required"),
        ("[", "expected a sigstore trusted root, found "),
    ],
)
def test_a_malformed_root_of_trust(released, capsys, tmp_path, content, says):
    file = tmp_path / "root.json"
    if content is not None:
        file.write_text(content)
    options = ["--repository", "owner/demo", "--trusted-root", str(file)]
    assert main(["verify", str(released), *options]) == 1
    assert capsys.readouterr().err.startswith(f"torchwheel: {file}: {says}")
