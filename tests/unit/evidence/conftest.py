"""Fixtures of the tests of signed evidence: roots of trust, a verifier, a policy and a wheel."""

from pathlib import Path

import pytest
from evidence_cases import COMMIT, REPOSITORY, WORKFLOWS

import signing
from torchwheel.evidence.bundles import BundleVerifier, open_verifier
from torchwheel.evidence.policy import Policy


@pytest.fixture(scope="session")
def other_root(tmp_path_factory) -> signing.Root:
    return signing.open_root(tmp_path_factory.mktemp("roots") / "theirs")


@pytest.fixture(scope="session")
def verifier(root) -> BundleVerifier:
    return open_verifier(str(root.trusted_root))


@pytest.fixture
def policy() -> Policy:
    return Policy(REPOSITORY, signing.GITHUB, WORKFLOWS, COMMIT)


@pytest.fixture
def wheel(tmp_path) -> Path:
    path = tmp_path / "demo-1.0.0-py3-none-any.whl"
    path.write_bytes(b"a wheel")
    return path
