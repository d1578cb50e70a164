"""The provenance of a wheel, held to the package that PyPI itself verifies with."""

import dataclasses
import json
from pathlib import Path

import pypi_attestations
import pytest
from evidence_cases import BUILD, REPOSITORY, save
from pypi_attestations import AttestationError, Distribution, GitHubPublisher, Provenance
from sigstore.models import TrustedRoot
from sigstore.verify import Verifier

import signing
from torchwheel.evidence.provenance import provenance_text
from torchwheel.install.attestation import bundles_of_provenance


@pytest.fixture
def attest(root, verifier, tmp_path):
    def made(files, job=BUILD):
        path = signing.sign_files(root, job, files, tmp_path / "a.sigstore.json")
        (attestation,) = verifier.read(path)
        return attestation

    return made


@pytest.fixture(autouse=True)
def production(root, monkeypatch):
    """PyPI's verifier, with the keys of the tests."""
    trusted = Verifier(trusted_root=TrustedRoot.from_file(str(root.trusted_root)))
    monkeypatch.setattr(
        pypi_attestations._impl.Verifier, "production", staticmethod(lambda **_: trusted)
    )


def test_pypi_reads_and_verifies_it(attest, wheel):
    provenance = Provenance.model_validate_json(provenance_text(attest([wheel])))
    (bundle,) = provenance.attestation_bundles
    assert bundle.publisher == GitHubPublisher(repository="owner/demo", workflow="release.yml")
    (attestation,) = bundle.attestations
    kind, _ = attestation.verify(bundle.publisher, Distribution.from_file(wheel))
    assert kind == signing.PREDICATE_TYPE
    wheel.write_bytes(b"another wheel")
    with pytest.raises(AttestationError, match="does not match distribution digest"):
        attestation.verify(bundle.publisher, Distribution.from_file(wheel))


def test_it_has_all_keys_of_the_pep(attest, wheel):
    document = json.loads(provenance_text(attest([wheel])))
    (bundle,) = document.pop("attestation_bundles")
    assert document == {"version": 1}
    assert bundle["publisher"]["claims"] == {}
    (attestation,) = bundle["attestations"]
    assert attestation.keys() == {"version", "verification_material", "envelope"}
    assert attestation["version"] == 1


def test_it_gives_the_attestation_back(attest, wheel, verifier, tmp_path):
    """`torchwheel install` reads it."""
    made = attest([wheel])
    path = tmp_path / "again.sigstore.jsonl"
    path.write_text(bundles_of_provenance(provenance_text(made).encode(), "provenance"))
    (again,) = verifier.read(path)
    assert (again.signer, again.subjects) == (made.signer, made.subjects)


def test_an_attestation_of_several_files_is_none(attest, wheel, tmp_path):
    other = save(tmp_path / "record.json", {})
    several = attest([wheel, other])
    assert provenance_text(several) is None
    # As that of one file, it would be refused.
    alone = dataclasses.replace(several, subjects=frozenset(list(several.subjects)[:1]))
    forced = Provenance.model_validate_json(provenance_text(alone)).attestation_bundles[0]
    with pytest.raises(AttestationError, match="must be exactly one"):
        forced.attestations[0].verify(forced.publisher, Distribution.from_file(wheel))


def test_the_job_of_another_forge_is_no_publisher_that_is_known(attest, wheel: Path):
    job = dataclasses.replace(BUILD, repository=REPOSITORY.replace("github.com", "forge.example"))
    assert provenance_text(attest([wheel], job)) is None
