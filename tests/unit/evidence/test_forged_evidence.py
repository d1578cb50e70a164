"""Every forgery of a signature is refused in one line; the cryptography is sigstore's own."""

import base64
import copy
import dataclasses
import json
import os
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from evidence_cases import BUILD, COMMIT, OTHER_COMMIT, REPOSITORY, WORKFLOWS, save

import signing
from torchwheel.evidence import bundles
from torchwheel.evidence.bundles import open_verifier
from torchwheel.evidence.files import Believed, verify_files
from torchwheel.evidence.policy import CALLER
from torchwheel_runtime.errors import TorchwheelError

BUILDS = frozenset({"build"})


def signed(root: signing.Root, wheel: Path, job: signing.Job = BUILD, **options) -> dict[str, Any]:
    content = signing.statement(signing.subjects_of([wheel]), job)
    return signing.bundle(root, job, content, **options)


def refusal(wheel: Path, content: dict[str, Any] | Path | None, policy, verifier) -> list[str]:
    """The lines that refuse a wheel with a bundle; paths are shortened to names."""
    bundles = []
    if content is not None:
        bundle = wheel.with_name("a.sigstore.json")
        bundles = [content if isinstance(content, Path) else save(bundle, content)]
    with pytest.raises(TorchwheelError) as caught:
        verify_files({wheel: BUILDS}, bundles, Believed((policy,), verifier.read))
    text = str(caught.value).replace(f"{wheel.parent}/", "")
    assert text.isprintable() or "\n" in text
    return text.splitlines()


NONE = (
    "demo-1.0.0-py3-none-any.whl: expected a signature, found none; the job that makes it must "
    "attest it, and the bundle must come with it"
)


def test_a_file_that_its_workflow_signed_is_believed(root, wheel, policy, verifier):
    bundle = save(wheel.with_name("a.sigstore.json"), signed(root, wheel))
    found = verify_files({wheel: BUILDS}, [bundle], Believed((policy,), verifier.read))
    signer = found[wheel].signer
    assert signer.workflow_path == WORKFLOWS["build"]
    assert (signer.repository, signer.commit) == (REPOSITORY, COMMIT)
    assert signer.run == f"{REPOSITORY}/actions/runs/1/attempts/1"


def test_a_file_without_a_signature(wheel, policy, verifier):
    assert refusal(wheel, None, policy, verifier) == [NONE]


# Jobs that the forge signs for, and who are not the build of this commit.
JOBS = {
    "repository": ("https://github.com/owner/fork", REPOSITORY),
    "workflow": (".github/workflows/evil.yml", " or ".join(WORKFLOWS.values())),
    "commit": (OTHER_COMMIT, COMMIT),
    "issuer": ("https://accounts.example.com", signing.GITHUB),
}


@pytest.mark.parametrize("name", JOBS)
def test_another_job(root, wheel, policy, verifier, name):
    found, expected = JOBS[name]
    content = signed(root, wheel, dataclasses.replace(BUILD, **{name: found}))
    says = f"a.sigstore.json: expected {name} {expected}, found {found}"
    assert refusal(wheel, content, policy, verifier) == [says, NONE]


def test_a_called_workflow_of_another_commit(root, wheel, policy, verifier, monkeypatch):
    """It has the right path and sources, but other steps."""
    extensions = signing.Job.extensions
    monkeypatch.setattr(
        signing.Job, "extensions", lambda job: {**extensions(job), 10: OTHER_COMMIT}
    )
    says = f"expected workflow {WORKFLOWS['build']} of commit {COMMIT}, found {OTHER_COMMIT}"
    content = signed(root, wheel)
    assert refusal(wheel, content, policy, verifier) == [f"a.sigstore.json: {says}", NONE]


OURS = f"https://github.com/owner/torchwheel/.github/workflows/wheels.yml@{OTHER_COMMIT}"
BY = f"{REPOSITORY}/{CALLER}@refs/tags/v1.0.0"
# The workflow with the job, and the one that was started and called it.
CALLS = {
    "ours, by the project's": (OURS, BY, True),
    "another file of ours": (OURS.replace("wheels", "smoke"), BY, False),
    "a longer name": (OURS.replace("wheels", "x-wheels"), BY, False),
    "ours, by another file": (OURS, BY.replace("torchwheel.yml", "evil.yml"), False),
    "ours, by another project's": (OURS, BY.replace("demo", "demo-fork"), False),
    "ours, by a branch's": (OURS, BY.replace("tags/v1.0.0", "heads/evil"), False),
    "the caller itself": (BY, BY, False),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_workflow_of_another_repository_is_called_by_the_projects_own(
    root, wheel, policy, verifier, monkeypatch, name
):
    workflow, caller, believed = CALLS[name]
    extensions = signing.Job.extensions
    called = {9: workflow, 10: OTHER_COMMIT, 18: caller}
    monkeypatch.setattr(signing.Job, "extensions", lambda job: {**extensions(job), **called})
    monkeypatch.setattr(signing.Job, "signer", workflow)
    content = signed(root, wheel)
    if believed:
        bundle = save(wheel.with_name("a.sigstore.json"), content)
        found = verify_files({wheel: BUILDS}, [bundle], Believed((policy,), verifier.read))
        assert found[wheel].signer.workflow_path == workflow.rpartition("@")[0]
        return
    assert "expected" in refusal(wheel, content, policy, verifier)[0]


def test_a_smoke_job_signs_no_wheel(root, wheel, policy, verifier):
    content = signed(root, wheel, dataclasses.replace(BUILD, workflow=WORKFLOWS["smoke"]))
    assert refusal(wheel, content, policy, verifier) == [
        f"{wheel.name}: expected a signature of build ({WORKFLOWS['build']}), found one of smoke "
        f"({WORKFLOWS['smoke']}): a.sigstore.json"
    ]


def test_another_root_of_trust(other_root, wheel, policy, verifier):
    bundle, file = refusal(wheel, signed(other_root, wheel), policy, verifier)
    assert bundle.startswith("a.sigstore.json: does not verify: failed to build timestamp cert")
    assert file == NONE


def test_a_real_root_does_not_believe_a_test(root, wheel, policy):
    """The root of trust that comes with sigstore is the default."""
    bundle, _ = refusal(wheel, signed(root, wheel), policy, open_verifier(None))
    assert bundle.startswith("a.sigstore.json: does not verify: ")


def test_a_swapped_file(root, wheel, policy, verifier):
    content = signed(root, wheel)
    ((_, before),) = signing.subjects_of([wheel])
    wheel.write_bytes(b"another wheel")
    ((_, after),) = signing.subjects_of([wheel])
    assert refusal(wheel, content, policy, verifier) == [
        f"{wheel.name}: expected sha256 {before}, as a.sigstore.json attests, found {after}"
    ]


def test_a_renamed_file(root, wheel, policy, verifier):
    content = signed(root, wheel)
    renamed = wheel.rename(wheel.with_name("demo-2.0.0-py3-none-any.whl"))
    assert refusal(renamed, content, policy, verifier) == [
        f"{renamed.name}: expected the name {wheel.name}, as a.sigstore.json attests its bytes"
    ]


def test_the_bundle_of_another_file(root, wheel, tmp_path, policy, verifier):
    other = tmp_path / "other.whl"
    other.write_bytes(b"x")
    assert refusal(wheel, signed(root, other), policy, verifier) == [NONE]


ENVELOPE, MATERIAL = "dsseEnvelope", "verificationMaterial"
ENTRY = (MATERIAL, "tlogEntries", 0)


def changed(content: dict[str, Any], *path: str | int, value: object) -> dict[str, Any]:
    """A document with another value in a place: a new one, none (`...`), or one of the old."""
    content = copy.deepcopy(content)
    part: Any = content
    for step in path[:-1]:
        part = part[step]
    if value is ...:
        del part[path[-1]]
    else:
        part[path[-1]] = value(part[path[-1]]) if callable(value) else value
    return content


def payload_with(*path: str | int, value: object) -> Callable[[str], str]:
    """The signed payload with another value."""

    def change(payload: str) -> str:
        made = changed(json.loads(base64.b64decode(payload)), *path, value=value)
        return base64.b64encode(json.dumps(made).encode()).decode()

    return change


INVALID = "does not verify: DSSE: invalid signature"
NO_BUNDLE = "not a sigstore bundle: "
TAMPERED: dict[str, tuple[tuple[str | int, ...], object, str]] = {
    "swapped predicate": (
        (ENVELOPE, "payload"),
        payload_with("predicate", "runDetails", "builder", "id", value="evil"),
        INVALID,
    ),
    "swapped subject": (
        (ENVELOPE, "payload"),
        payload_with("subject", 0, "digest", "sha256", value="0" * 64),
        INVALID,
    ),
    "not logged": (
        (MATERIAL, "tlogEntries"),
        [],
        f"{NO_BUNDLE}expected exactly one log entry in bundle",
    ),
    "no proof": (
        (*ENTRY, "inclusionProof"),
        ...,
        f"{NO_BUNDLE}verificationMaterial.tlogEntries[0].inclusionProof: Field",
    ),
    "another tree": (
        (*ENTRY, "inclusionProof", "hashes"),
        [base64.b64encode(bytes(32)).decode()],
        "does not verify: invalid log entry: inclusion proof contains invalid root hash",
    ),
    "another time": (
        (*ENTRY, "integratedTime"),
        lambda seconds: str(int(seconds) + 1),
        "does not verify: invalid log entry: SET: invalid inclusion promise: keyring",
    ),
    "no promise": (
        (*ENTRY, "inclusionPromise"),
        ...,
        f"{NO_BUNDLE}bundle must contain an inclusion promise or signed",
    ),
    "no signature": (
        (ENVELOPE, "signatures"),
        [],
        "does not verify: envelope must contain exactly one signature",
    ),
    "old format": (
        ("mediaType",),
        "application/vnd.dev.sigstore.bundle+json;version=9",
        f"{NO_BUNDLE}mediaType: Input should be",
    ),
}


@pytest.mark.parametrize(("path", "value", "says"), TAMPERED.values(), ids=TAMPERED)
def test_a_tampered_bundle(root, wheel, policy, verifier, path, value, says):
    content = changed(signed(root, wheel), *path, value=value)
    bundle, file = refusal(wheel, content, policy, verifier)
    assert bundle.startswith(f"a.sigstore.json: {says}")
    assert file == NONE


@pytest.mark.parametrize(
    ("part", "says"),
    [
        ("certificate", "DSSE: invalid signature"),
        ("tlogEntries", "log entry signatures do not match bundle"),
    ],
)
def test_a_part_of_another_signature(root, wheel, policy, verifier, part, says):
    one, other = signed(root, wheel), signed(root, wheel)
    one[MATERIAL][part] = other[MATERIAL][part]
    bundle, _ = refusal(wheel, one, policy, verifier)
    assert bundle == f"a.sigstore.json: does not verify: {says}"


def test_a_certificate_that_had_expired(root, wheel, policy, verifier):
    content = signed(root, wheel, logged_after=timedelta(hours=1))
    bundle, _ = refusal(wheel, content, policy, verifier)
    assert bundle.startswith("a.sigstore.json: does not verify: failed to build timestamp cert")


def test_a_certificate_that_no_log_has(root, wheel, policy, verifier, monkeypatch):
    """Its authority signed it, but the certificate log's promise is of another key."""
    theirs = dict(root.keys) | {"ct": root.keys["authority"]}
    content = signed(dataclasses.replace(root, keys=theirs), wheel)
    bundle, _ = refusal(wheel, content, policy, verifier)
    assert bundle.startswith("a.sigstore.json: does not verify: failed to verify SCT")


@pytest.mark.parametrize("number", [8, 9, 10, 11, 12, 13, 14, 21])
def test_a_certificate_without_an_identity(root, wheel, policy, verifier, number):
    bundle, _ = refusal(wheel, signed(root, wheel, without=[number]), policy, verifier)
    assert bundle.startswith("a.sigstore.json: does not verify: the certificate names no ")
    assert bundle.endswith(f"(1.3.6.1.4.1.57264.1.{number})")


def test_another_payload_type(root, wheel, policy, verifier):
    bundle, _ = refusal(wheel, signed(root, wheel, payload_type="text/plain"), policy, verifier)
    expected = "expected a payload application/vnd.in-toto+json, found text/plain"
    assert bundle == f"a.sigstore.json: does not verify: {expected}"


BUILDER = ("predicate", "runDetails", "builder", "id")
SOURCE = ("predicate", "buildDefinition", "resolvedDependencies", 0)
# Each with the beginning of what is said.
STATEMENTS = {
    ("predicateType",): ("https://evil.example/v1", "statement.predicateType: Input should be"),
    ("_type",): ("https://in-toto.io/Statement/v0.1", "statement._type: Input should be"),
    ("subject",): ([], "statement.subject: List should have at least 1 item"),
    ("predicate",): ({}, "statement.predicate.buildDefinition.resolvedDependencies[0].uri: Field"),
    BUILDER: ("https://evil.example", f"provenance: expected builder {BUILD.signer}, as the cert"),
    (*SOURCE, "digest"): (
        {"gitCommit": OTHER_COMMIT},
        f'provenance: expected commit {COMMIT}, as the certificate, found "{OTHER_COMMIT}"',
    ),
    (*SOURCE, "uri"): (
        "git+https://github.com/owner/other@refs/tags/v1.0.0",
        f"provenance: expected source git+{REPOSITORY}@refs/tags/v1.0.0, as the certificate",
    ),
}


@pytest.mark.parametrize("path", STATEMENTS, ids=lambda path: str(path[-1]))
def test_a_signed_statement_that_contradicts_its_certificate(root, wheel, policy, verifier, path):
    """A job signs what it likes; its certificate is not in its hands."""
    value, says = STATEMENTS[path]
    content = signing.statement(signing.subjects_of([wheel]), BUILD)
    content = changed(content, *path, value=value)
    bundle, _ = refusal(wheel, signing.bundle(root, BUILD, content), policy, verifier)
    assert bundle.startswith(f"a.sigstore.json: does not verify: {says}")


def large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(100 << 20)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (large, "not a sigstore bundle: expected at most 8 MiB, found more"),
        (Path.mkdir, ""),
        (os.mkfifo, ""),
        (
            lambda path: path.write_text("{}\n" * 101),
            "not a sigstore bundle: expected at most 100 bundles, found 101",
        ),
    ],
    ids=["100 MB", "folder", "pipe", "101 bundles"],
)
def test_a_file_of_bundles_that_is_none(wheel, policy, verifier, make, says):
    odd = wheel.with_name("odd.sigstore.jsonl")
    make(odd)
    bundle, _ = refusal(wheel, odd, policy, verifier)
    assert bundle.startswith("odd.sigstore.jsonl: ")
    assert bundle.endswith(says)


def test_many_bundles_in_one_file(root, wheel, policy, verifier):
    lines = wheel.with_name("sha256.jsonl")
    lines.write_text("".join(json.dumps(signed(root, wheel)) + "\n" for _ in range(2)))
    verify_files({wheel: BUILDS}, [lines], Believed((policy,), verifier.read))


def test_a_root_of_trust_that_never_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    end = threading.Event()
    monkeypatch.setattr(bundles.Verifier, "production", end.wait)
    monkeypatch.setattr(bundles, "_LATEST_SECONDS", 0.01)
    with pytest.raises(TorchwheelError, match=r"no answer in 0\.01 s; name a file with --trusted"):
        open_verifier("latest")
    end.set()
