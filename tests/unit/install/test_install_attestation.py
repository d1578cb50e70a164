"""The attestation that an index offers for a wheel is verified, or nothing is installed."""

import dataclasses
import json
import sys

import pytest
from install_cases import Pages, candidate
from packaging.version import Version

import signing
from torchwheel.install.attestation import Trust, verify_signature
from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.files import sha256
from torchwheel_runtime.json_files import MalformedError

JOB = signing.Job(
    "https://github.com/owner/demo",
    ".github/workflows/release.yml",
    "0123456789abcdef0123456789abcdef01234567",
)
VERSION = Version("1.0+cu130torch2.11")
BESIDE = "https://host/attestation.sigstore.json"
PROVENANCE = "https://host/demo.provenance"


@pytest.fixture
def wheel(tmp_path):
    path = tmp_path / candidate("1.0+cu130torch2.11").file
    path.write_bytes(b"a wheel")
    return path


def bundle(root, wheel, job=JOB):
    return signing.bundle(root, job, signing.statement(signing.subjects_of([wheel]), job))


def provenance(content):
    """A bundle as PEP 740 has it."""
    envelope = content["dsseEnvelope"]
    material = content["verificationMaterial"]
    return {
        "version": 1,
        "attestation_bundles": [
            {
                "publisher": {"kind": "GitHub"},
                "attestations": [
                    {
                        "version": 1,
                        "verification_material": {
                            "certificate": material["certificate"]["rawBytes"],
                            "transparency_entries": material["tlogEntries"],
                        },
                        "envelope": {
                            "statement": envelope["payload"],
                            "signature": envelope["signatures"][0]["sig"],
                        },
                    }
                ],
            }
        ],
    }


def verify(
    wheel, root, tmp_path, pages, repository="owner/demo", *, trust=(), version=VERSION, **changes
):
    folder = tmp_path / "own"
    folder.mkdir(exist_ok=True)
    one = candidate("1.0+cu130torch2.11", **{"sha256": sha256(wheel), **changes})
    return verify_signature(
        wheel,
        one,
        Pages({address: json.dumps(content) for address, content in pages.items()}),
        folder,
        Trust(repository, str(root.trusted_root), **dict(trust)),
        version,
    )


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"workflow": ".github/workflows/smoke.yml"}, "expected workflow .github/workflows/wheels"),
        ({"workflow": "anything.yml"}, "expected workflow .github/workflows/wheels"),
        ({"runner": "self-hosted"}, "expected runner github-hosted, found self-hosted"),
        ({"ref": "refs/tags/nightly"}, "expected ref refs/tags/v1.0, found refs/tags/nightly"),
        ({"ref": "refs/tags/v0.9.0"}, "expected ref refs/tags/v1.0, found refs/tags/v0.9.0"),
    ],
)
def test_another_signer_of_the_repository(wheel, root, tmp_path, changes, says):
    """One line, as `torchwheel verify` has it."""
    job = dataclasses.replace(JOB, **changes)
    pages = {PROVENANCE: provenance(bundle(root, wheel, job))}
    refused(says, wheel, root, tmp_path, pages, provenance=PROVENANCE)
    widened = {"workflow": job.workflow, "self_hosted": True}
    if "ref" not in changes:
        assert verify(wheel, root, tmp_path, pages, trust=widened, provenance=PROVENANCE).ok


def test_who_was_believed_is_named(wheel, root, tmp_path):
    """Of several attestations the one that holds, not the first."""
    other = dataclasses.replace(JOB, workflow="anything.yml")
    content = provenance(bundle(root, wheel, other))
    content["attestation_bundles"] += provenance(bundle(root, wheel))["attestation_bundles"]
    signature = verify(wheel, root, tmp_path, {PROVENANCE: content}, provenance=PROVENANCE)
    assert signature.says == (
        f"{JOB.repository}, {JOB.workflow}, {JOB.ref}, commit {JOB.commit}, on a github-hosted "
        "runner"
    )


def test_a_bundled_package_has_the_tag_of_any_version(wheel, root, tmp_path):
    """Its own version is another than that of the release."""
    here = (wheel, root, tmp_path)
    for ref, says in (("refs/tags/v7.0", ""), ("refs/tags/nightly", "ref refs/tags/VERSION")):
        job = dataclasses.replace(JOB, ref=ref)
        pages = {PROVENANCE: provenance(bundle(root, wheel, job))}
        if says:
            refused(says, *here, pages, version=None, provenance=PROVENANCE)
        else:
            assert verify(*here, pages, version=None, provenance=PROVENANCE).ok


@pytest.mark.parametrize("repository", ["owner/demo", None])
def test_the_bundle_beside_a_wheel_of_our_index(wheel, root, tmp_path, repository):
    pages = {BESIDE: bundle(root, wheel)}
    signature = verify(wheel, root, tmp_path, pages, repository, described=True)
    assert signature.ok
    assert signature.says.startswith("https://github.com/owner/demo, .github/workflows/release.yml")


def test_the_provenance_of_pep_740(wheel, root, tmp_path):
    pages = {PROVENANCE: provenance(bundle(root, wheel))}
    assert verify(wheel, root, tmp_path, pages, provenance=PROVENANCE).ok


def refused(says, *arguments, **changes):
    with pytest.raises(TorchwheelError, match=says):
        verify(*arguments, **changes)


def test_what_is_refused(wheel, root, tmp_path):
    good = bundle(root, wheel)
    here = (wheel, root, tmp_path)
    other = dataclasses.replace(JOB, repository="https://github.com/mallory/demo")
    branch = dataclasses.replace(JOB, ref="refs/heads/main")
    named = {"provenance": PROVENANCE}
    theirs = {PROVENANCE: provenance(bundle(root, wheel, other))}
    refused("expected repository", *here, theirs, **named)
    theirs = {PROVENANCE: provenance(bundle(root, wheel, branch))}
    refused("expected ref", *here, theirs, **named)
    refused("expected an attestation by owner/demo, found none", *here, {})
    refused("expected the provenance that the index names, found none", *here, {}, **named)
    forged = provenance(good)
    forged["attestation_bundles"][0]["attestations"][0]["envelope"]["signature"] = "AAAA"
    refused("does not verify", *here, {PROVENANCE: forged}, **named)
    refused("does not verify", *here, {PROVENANCE: forged}, None, **named)
    wheel.write_bytes(b"another wheel")
    refused("expected an attestation of this name and hash", *here, {BESIDE: good}, described=True)


@pytest.mark.parametrize(
    "content",
    [{}, [], {"attestation_bundles": []}, {"attestation_bundles": [{"attestations": [{}]}]}],
)
def test_a_malformed_provenance(wheel, root, tmp_path, content):
    with pytest.raises(MalformedError):
        verify(wheel, root, tmp_path, {PROVENANCE: content}, provenance=PROVENANCE)


def test_without_an_attestation_or_without_the_extra(wheel, root, tmp_path, monkeypatch):
    signature = verify(wheel, root, tmp_path, {}, None)
    assert (signature.ok, signature.says) == (False, "the index offers no attestation")
    monkeypatch.setitem(sys.modules, "torchwheel.evidence.bundles", None)
    pages = {BESIDE: bundle(root, wheel)}
    signature = verify(wheel, root, tmp_path, pages, None, described=True)
    assert not signature.ok
    assert "the extra `evidence`" in signature.says
    with pytest.raises(ModuleNotFoundError):
        verify(wheel, root, tmp_path, pages, described=True)
