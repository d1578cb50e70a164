"""`torchwheel verify`: one line a check, exit status 0 only if all hold."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest
from evidence_cases import BUILD, COMMIT, OTHER_COMMIT, REPOSITORY, WORKFLOWS

import signing
from torchwheel.cli import main
from torchwheel.files import sha256

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
            *("sha256", "signature", "issuer", "repository", "commit", "ref", "workflow", "run"),
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
        f"ok      run         {REPOSITORY}/actions/runs/1/attempts/1, on a github-hosted runner",
    ]


def failed(status: int, lines: list[str]) -> list[str]:
    assert status == 1
    return [line.removeprefix("FAILED  ") for line in lines if not line.startswith("ok ")]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--commit", OTHER_COMMIT], f"commit      expected commit {OTHER_COMMIT}, found {COMMIT}"),
        (
            ["--ref", "refs/heads/main"],
            "ref         expected ref refs/heads/main, found refs/tags/",
        ),
        (["--workflow", "x.yml"], "workflow    expected workflow x.yml, found .github/workflows/r"),
        (
            ["--issuer", "https://x.y"],
            "issuer      expected issuer https://x.y, found https://token",
        ),
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
        "workflow    expected workflow one of https://github.com/other/demo, found "
        f"{WORKFLOWS['release']}",
    ]


def test_a_branch_is_no_release(released, root, capsys):
    """Who may push a branch can change the workflow there, and it signs as this repository."""
    branch = dataclasses.replace(RELEASE, ref="refs/heads/evil")
    signing.sign_files(root, branch, [released], released.with_name("release.sigstore.json"))
    (line,) = failed(*verify(released, capsys=capsys))
    assert line == "ref         expected ref refs/tags/*, found refs/heads/evil"
    assert verify(released, "--ref", "*", capsys=capsys)[0] == 0


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


def test_a_folder_is_no_file(released, capsys):
    call = ["verify", str(released.parent), "--repository", "owner/demo"]
    assert main(call) == 1
    says = "expected a file, found a folder or a device"
    assert capsys.readouterr().err == f"torchwheel: {released.parent}: {says}\n"


def test_no_bundle(released, capsys):
    released.with_name("release.sigstore.json").unlink()
    (line,) = failed(*verify(released, capsys=capsys))
    assert line == (
        f"signature   expected an attestation of {released.name} with this hash, found none"
    )


def test_a_changed_wheel(released, capsys):
    released.write_bytes(b"changed")
    (line,) = failed(*verify(released, capsys=capsys))
    assert line.startswith("signature   expected an attestation of")


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


def test_the_signer_of_the_rehearsal(wheel, tmp_path, capsys):
    """tests/signing.py as a program, as a stand-in of the forge's action calls it."""

    def call(*arguments: str) -> str:
        command = [sys.executable, str(SIGNER), "--root", str(tmp_path / "root"), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    trusted = call("trust").strip()
    sums = tmp_path / "SHA256SUMS"
    sums.write_text(f"{sha256(wheel)}  {wheel.name}\n")
    call(
        *("sign", "--repository", REPOSITORY, "--workflow", WORKFLOWS["release"]),
        *("--commit", COMMIT, "--checksums", str(sums)),
        *("--bundle", str(tmp_path / "evidence" / "all.sigstore.json")),
    )
    status, _ = verify(wheel, "--trusted-root", trusted, "--sums", str(sums), capsys=capsys)
    assert status == 0
