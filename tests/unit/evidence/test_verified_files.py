"""Files that are held to their signatures."""

import dataclasses
import importlib.metadata
import json
import os
from pathlib import Path

import pypi_attestations
import pytest
from evidence_cases import BUILD, REPOSITORY, WORKFLOWS, save
from pypi_attestations import AttestationError, Distribution, GitHubPublisher, Provenance
from sigstore.models import TrustedRoot
from sigstore.verify import Verifier

import signing
from torchwheel.evidence.bundles import BundleVerifier
from torchwheel.evidence.files import (
    ATTESTATION,
    Attestation,
    Believed,
    open_verified,
    verify_published,
)
from torchwheel.evidence.policy import RELEASES, Policy
from torchwheel.evidence.provenance import bundles_of_provenance, provenance_text
from torchwheel_runtime.errors import TorchwheelError

# A file that was verified is not verified again; whatever differs is, and nobody can add one.


RELEASE = dataclasses.replace(BUILD, workflow=WORKFLOWS["release"], caller="")
POLICY = Policy(REPOSITORY, signing.GITHUB, WORKFLOWS, None, RELEASES)
REFUSED = "expected a signature of release"


class Reads:
    """A verifier that counts what it verifies."""

    def __init__(self, verifier: BundleVerifier) -> None:
        self.verifier = verifier
        self.bundles: list[Path] = []

    def __call__(self, path: Path) -> tuple[Attestation, ...]:
        self.bundles.append(path)
        return self.verifier.read(path)


@pytest.fixture
def reads(verifier) -> Reads:
    return Reads(verifier)


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("TORCHWHEEL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "evidence" / "verified.json"


@pytest.fixture
def asset(root, tmp_path) -> Path:
    """A file of a release, signed."""
    path = tmp_path / "v1" / "catalogue.json"
    path.parent.mkdir()
    path.write_text("{}")
    signing.sign_files(root, RELEASE, [path], path.with_name(ATTESTATION))
    return path


@pytest.fixture
def verify(cache, reads, root, asset):
    def verify(policy: Policy = POLICY, trusted: Path | str = root.trusted_root) -> int:
        """How many bundles were verified for the asset."""
        before = len(reads.bundles)
        verified = open_verified((policy,), str(trusted))
        verify_published([asset], Believed((policy,), reads, verified=verified))
        return len(reads.bundles) - before

    return verify


def test_a_file_is_verified_once(verify, cache):
    assert [verify(), verify(), verify()] == [1, 0, 0]
    (key,) = json.loads(cache.read_text())
    assert len(key) == 64


def test_a_moved_release_is_not_verified_again(verify, asset, tmp_path, reads, root):
    assert verify() == 1
    asset.parent.rename(tmp_path / "v2")
    verified = open_verified((POLICY,), str(root.trusted_root))
    moved = [tmp_path / "v2" / asset.name]
    verify_published(moved, Believed((POLICY,), reads, verified=verified))
    assert len(reads.bundles) == 1


def test_other_bytes_are_verified(verify, asset, root):
    verify()
    asset.write_text("{ }")
    with pytest.raises(TorchwheelError, match=f"expected sha256 .*{ATTESTATION} attests"):
        verify()
    signing.sign_files(root, RELEASE, [asset], asset.with_name(ATTESTATION))
    assert [verify(), verify()] == [1, 0]


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda bundle: bundle.write_text("{}"), "not a sigstore bundle"),
        (Path.unlink, "expected a signature, found no"),
    ],
    ids=["another bundle", "no bundle"],
)
def test_another_bundle_is_verified_and_none_is_refused(verify, asset, damage, says):
    verify()
    damage(asset.with_name(ATTESTATION))
    with pytest.raises(TorchwheelError, match=says):
        verify()


def test_another_policy_is_held_to(verify):
    verify()
    other = dataclasses.replace(POLICY, repository="https://github.com/owner/other")
    with pytest.raises(TorchwheelError, match=r"expected repository .*owner/other"):
        verify(other)


def test_another_root_of_trust_verifies(verify, other_root):
    assert [verify(), verify(trusted=other_root.trusted_root), verify()] == [1, 1, 0]


@pytest.mark.parametrize("changed", ["sigstore", "cryptography"])
def test_another_verifier_verifies(verify, monkeypatch, changed):
    verify()
    version = importlib.metadata.version
    new = {changed: "99.0"}
    monkeypatch.setattr(importlib.metadata, "version", lambda name: new.get(name, version(name)))
    assert verify() == 1


def test_what_is_refused_is_not_noted(verify, asset, root, cache):
    job = dataclasses.replace(RELEASE, workflow=WORKFLOWS["smoke"])
    signing.sign_files(root, job, [asset], asset.with_name(ATTESTATION))
    for _ in range(2):
        with pytest.raises(TorchwheelError, match=REFUSED):
            verify()
    assert not cache.exists()


def test_a_file_that_is_exchanged_meanwhile_is_not_noted(verify, asset, reads, cache):
    """Its first bytes are not those that the bundle attests."""
    signed = asset.read_text()
    asset.write_text("forged")

    class Exchanging(Reads):
        def __call__(self, path: Path) -> tuple[Attestation, ...]:
            asset.write_text(signed)
            return super().__call__(path)

    reads.__class__ = Exchanging
    assert verify() == 1
    assert not cache.exists()


def test_a_list_that_others_can_write_to_is_not_believed(verify, cache):
    verify()
    cache.chmod(0o666)
    assert verify() == 1
    assert verify() == 0  # the list is a new file
    cache.parent.chmod(0o777)
    assert [verify(), verify()] == [1, 1]
    cache.parent.chmod(0o700)
    assert verify() == 0


def test_a_link_to_a_list_elsewhere_is_not_believed(verify, cache, tmp_path):
    verify()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    elsewhere.chmod(0o777)
    cache.rename(elsewhere / cache.name)
    cache.symlink_to(elsewhere / cache.name)
    assert verify() == 1


@pytest.mark.parametrize("content", ["", "[1]", '{"a": "b"}', "\0", '["' + "0" * 64 + '"]', None])
def test_a_malformed_list_is_none(verify, cache, content):
    cache.parent.mkdir(parents=True)
    if content is None:
        os.mkfifo(cache)
    else:
        cache.write_text(content)
    assert [verify(), verify()] == [1, 0]


def test_without_a_cache_every_file_is_verified(verify, cache):
    cache.parent.parent.write_text("a file")
    assert [verify(), verify()] == [1, 1]


def test_the_root_of_today_is_asked_each_time(verify):
    assert [verify(trusted="latest"), verify(trusted="latest")] == [1, 1]


def test_the_list_has_a_bound(verify, cache, monkeypatch):
    monkeypatch.setattr("torchwheel.evidence.files._MOST", 2)
    cache.parent.mkdir(parents=True)
    cache.write_text(json.dumps(["a", "b", "c"]))
    verify()
    kept = json.loads(cache.read_text())
    assert (kept[0], len(kept)) == ("c", 2)


# The provenance of a wheel, held to the package that PyPI itself verifies with.


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
