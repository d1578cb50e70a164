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
from hypothesis import given, settings
from hypothesis import strategies as st

import signing
from torchwheel.evidence import bundles
from torchwheel.evidence.bundles import open_verifier
from torchwheel.evidence.files import Believed, verify_files
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
    "another repository": (
        {"repository": "https://github.com/owner/fork"},
        f"expected repository {REPOSITORY}, found https://github.com/owner/fork",
    ),
    "another workflow": (
        {"workflow": ".github/workflows/evil.yml"},
        f"expected workflow {' or '.join(WORKFLOWS.values())}, found .github/workflows/evil.yml",
    ),
    "another commit": (
        {"commit": OTHER_COMMIT},
        f"expected commit {COMMIT}, found {OTHER_COMMIT}",
    ),
    "another issuer": (
        {"issuer": "https://accounts.example.com"},
        f"expected issuer {signing.GITHUB}, found https://accounts.example.com",
    ),
}


@pytest.mark.parametrize("name", JOBS)
def test_another_job(root, wheel, policy, verifier, name):
    change, says = JOBS[name]
    content = signed(root, wheel, dataclasses.replace(BUILD, **change))
    assert refusal(wheel, content, policy, verifier) == [f"a.sigstore.json: {says}", NONE]


def test_a_called_workflow_of_another_commit(root, wheel, policy, verifier, monkeypatch):
    """It has the right path and sources, but other steps."""
    extensions = signing.Job.extensions
    monkeypatch.setattr(
        signing.Job, "extensions", lambda job: {**extensions(job), 10: OTHER_COMMIT}
    )
    says = f"expected workflow {WORKFLOWS['build']} of commit {COMMIT}, found {OTHER_COMMIT}"
    content = signed(root, wheel)
    assert refusal(wheel, content, policy, verifier) == [f"a.sigstore.json: {says}", NONE]


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


def envelope(content: dict[str, Any]) -> dict[str, Any]:
    return content["dsseEnvelope"]


def swapped_predicate(content: dict[str, Any]) -> None:
    payload = json.loads(base64.b64decode(envelope(content)["payload"]))
    payload["predicate"]["runDetails"]["builder"]["id"] = "evil"
    envelope(content)["payload"] = base64.b64encode(json.dumps(payload).encode()).decode()


def swapped_subject(content: dict[str, Any]) -> None:
    payload = json.loads(base64.b64decode(envelope(content)["payload"]))
    payload["subject"][0]["digest"]["sha256"] = "0" * 64
    envelope(content)["payload"] = base64.b64encode(json.dumps(payload).encode()).decode()


def material(content: dict[str, Any]) -> dict[str, Any]:
    return content["verificationMaterial"]


def entry(content: dict[str, Any]) -> dict[str, Any]:
    return material(content)["tlogEntries"][0]


def not_logged(content: dict[str, Any]) -> None:
    material(content)["tlogEntries"] = []


def no_proof(content: dict[str, Any]) -> None:
    del entry(content)["inclusionProof"]


def another_tree(content: dict[str, Any]) -> None:
    entry(content)["inclusionProof"]["hashes"] = [base64.b64encode(bytes(32)).decode()]


def another_time(content: dict[str, Any]) -> None:
    entry(content)["integratedTime"] = str(int(entry(content)["integratedTime"]) + 1)


def no_promise(content: dict[str, Any]) -> None:
    del entry(content)["inclusionPromise"]


def no_signature(content: dict[str, Any]) -> None:
    envelope(content)["signatures"] = []


def old_format(content: dict[str, Any]) -> None:
    content["mediaType"] = "application/vnd.dev.sigstore.bundle+json;version=9"


TAMPERED: dict[Callable[[dict[str, Any]], None], str] = {
    swapped_predicate: "does not verify: DSSE: invalid signature",
    swapped_subject: "does not verify: DSSE: invalid signature",
    not_logged: "not a sigstore bundle: expected exactly one log entry in bundle",
    no_proof: "not a sigstore bundle: verificationMaterial.tlogEntries[0].inclusionProof: Field",
    another_tree: "does not verify: invalid log entry: inclusion proof contains invalid root hash",
    another_time: "does not verify: invalid log entry: SET: invalid inclusion promise: keyring",
    no_promise: "not a sigstore bundle: bundle must contain an inclusion promise or signed",
    no_signature: "does not verify: envelope must contain exactly one signature",
    old_format: "not a sigstore bundle: mediaType: Input should be",
}


@pytest.mark.parametrize("tamper", TAMPERED, ids=lambda tamper: tamper.__name__)
def test_a_tampered_bundle(root, wheel, policy, verifier, tamper):
    content = signed(root, wheel)
    tamper(content)
    bundle, file = refusal(wheel, content, policy, verifier)
    assert bundle.startswith(f"a.sigstore.json: {TAMPERED[tamper]}")
    assert file == NONE


def test_a_signature_by_another_key(root, wheel, policy, verifier):
    """The certificate of one signature, with the envelope and the log entry of another."""
    one, other = signed(root, wheel), signed(root, wheel)
    material(one)["certificate"] = material(other)["certificate"]
    bundle, _ = refusal(wheel, one, policy, verifier)
    assert bundle == "a.sigstore.json: does not verify: DSSE: invalid signature"


def test_the_log_entry_of_another_signature(root, wheel, policy, verifier):
    one, other = signed(root, wheel), signed(root, wheel)
    material(one)["tlogEntries"] = material(other)["tlogEntries"]
    bundle, _ = refusal(wheel, one, policy, verifier)
    assert bundle == ("a.sigstore.json: does not verify: log entry signatures do not match bundle")


def test_a_certificate_that_had_expired(root, wheel, policy, verifier):
    bundle, _ = refusal(
        wheel, signed(root, wheel, logged_after=timedelta(hours=1)), policy, verifier
    )
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


def changed(content: dict[str, Any], *path: str | int, value: object) -> dict[str, Any]:
    content = copy.deepcopy(content)
    part: Any = content
    for step in path[:-1]:
        part = part[step]
    part[path[-1]] = value
    return content


BUILDER = ("predicate", "runDetails", "builder", "id")
SOURCE = ("predicate", "buildDefinition", "resolvedDependencies", 0)
# Each with the beginning of what is said.
STATEMENTS = {
    ("predicateType",): ("https://evil.example/v1", "statement.predicateType: Input should be"),
    ("_type",): ("https://in-toto.io/Statement/v0.1", "statement._type: Input should be"),
    ("subject",): ([], "statement.subject: List should have at least 1 item"),
    ("predicate",): ({}, "statement.predicate.buildDefinition: Field required"),
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


def test_a_bundle_of_100_mb(wheel, policy, verifier):
    large = wheel.with_name("large.sigstore.json")
    with large.open("wb") as file:
        file.truncate(100 << 20)
    bundle, _ = refusal(wheel, large, policy, verifier)
    says = "not a sigstore bundle: expected at most 8 MiB, found more"
    assert bundle == f"large.sigstore.json: {says}"


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo], ids=["folder", "pipe"])
def test_a_bundle_that_is_no_file(wheel, policy, verifier, make):
    odd = wheel.with_name("odd.sigstore.json")
    make(odd)
    bundle, _ = refusal(wheel, odd, policy, verifier)
    assert bundle.startswith("odd.sigstore.json: ")


def test_many_bundles_in_one_file(root, wheel, policy, verifier):
    lines = wheel.with_name("sha256.jsonl")
    lines.write_text("".join(json.dumps(signed(root, wheel)) + "\n" for _ in range(2)))
    verify_files({wheel: BUILDS}, [lines], Believed((policy,), verifier.read))
    lines.write_text("{}\n" * 101)
    bundle, _ = refusal(wheel, lines, policy, verifier)
    says = "not a sigstore bundle: expected at most 100 bundles, found 101"
    assert bundle == f"sha256.jsonl: {says}"


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text()
    | st.binary().map(lambda data: base64.b64encode(data).decode()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@pytest.fixture(scope="module")
def one_bundle(root, tmp_path_factory) -> tuple[Path, str]:
    wheel = tmp_path_factory.mktemp("mutated") / "demo-1.0.0-py3-none-any.whl"
    wheel.write_bytes(b"a wheel")
    return wheel, json.dumps(signed(root, wheel))


def paths(value: object, here: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """The path of every part of a document."""
    inner: list[tuple[str | int, object]] = []
    if isinstance(value, dict):
        inner = list(value.items())
    elif isinstance(value, list):
        inner = list(enumerate(value))
    return [here, *(path for step, part in inner for path in paths(part, (*here, step)))]


@settings(max_examples=60)
@given(data=st.data())
def test_a_mutated_bundle_is_refused_in_a_line(one_bundle, verifier, data):
    wheel, text = one_bundle
    content = json.loads(text)
    path = data.draw(st.sampled_from(paths(content)[1:]))
    value = data.draw(JSON)
    mutated = changed(content, *path, value=value)
    refused_or_equal(wheel, json.dumps(mutated).encode(), verifier)


@settings(max_examples=40)
@given(data=st.data())
def test_a_torn_bundle_is_refused_in_a_line(one_bundle, verifier, data):
    wheel, text = one_bundle
    at = data.draw(st.integers(0, len(text) - 1))
    tail = data.draw(st.binary(max_size=20))
    refused_or_equal(wheel, text[:at].encode() + tail, verifier)


def refused_or_equal(wheel: Path, content: bytes, verifier) -> None:
    """Either one printable line, or the same signer and subjects as before: never another's."""
    bundle = wheel.with_name("mutated.sigstore.json")
    bundle.write_bytes(content)
    try:
        found = verifier.read(bundle)
    except TorchwheelError as error:
        found, line = (), str(error)
        is_one_line = line.isprintable() and len(line) < 2000
    else:
        is_one_line = True
    assert is_one_line
    for attestation in found:
        assert attestation.signer.workflow == BUILD.signer
        assert attestation.subjects == frozenset(signing.subjects_of([wheel]))


def test_a_root_of_trust_that_never_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    end = threading.Event()
    monkeypatch.setattr(bundles.Verifier, "production", end.wait)
    monkeypatch.setattr(bundles, "_LATEST_SECONDS", 0.01)
    with pytest.raises(TorchwheelError, match=r"no answer in 0\.01 s; name a file with --trusted"):
        open_verifier("latest")
    end.set()
