"""Verifies who made a wheel that an index offers, by the attestation that comes with it.

That is PEP 740's provenance, or, of our own releases, the bundle beside the wheel. To verify takes
`torchwheel[evidence]`; to look for an attestation takes the base alone.
"""

import dataclasses
from pathlib import Path

from packaging.utils import canonicalize_name
from packaging.version import Version

from torchwheel.evidence.files import ATTESTATION, judge_attestations
from torchwheel.evidence.policy import Signer, wheel_policy
from torchwheel.evidence.provenance import bundles_of_provenance
from torchwheel.findings import CheckResult
from torchwheel.install.page import OfferedWheel
from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.fetch import Fetch, link
from torchwheel_runtime.text import escape, hide_secrets

_ACCEPT = "application/vnd.pypi.integrity.v1+json, application/json"
_NAME = "signature"


@dataclasses.dataclass(frozen=True)
class Trust:
    """Whose wheels are believed. Each field is the option of its name.

    Attributes:
        repository: whose workflow must have signed at a tag; then a wheel without is an error. If
            it is not given, any signer's attestation is verified, and the signer is named.
        trusted_root: a file, or "latest".
        workflow: the file of the workflow; default: those that `torchwheel new` writes.
        self_hosted: whether a job on a machine of one's own is believed.
        unsigned: normalised names of projects whose wheels are believed by their hash alone.
    """

    repository: str | None = None
    trusted_root: str | None = None
    workflow: str | None = None
    self_hosted: bool = False
    unsigned: frozenset[str] = frozenset()


def find_bundles(candidate: OfferedWheel, folder: Path, fetch: Fetch) -> tuple[Path, ...]:
    """Write the attestations that an index offers for a wheel to `folder`, as sigstore bundles."""
    if candidate.provenance:
        answer = fetch.page(candidate.provenance, _ACCEPT)
        if answer is None:
            says = "expected the provenance that the index names, found none"
            raise TorchwheelError(f"{escape(hide_secrets(candidate.provenance))}: {says}")
        path = folder / "provenance.sigstore.jsonl"
        path.write_text(bundles_of_provenance(answer.body, candidate.provenance), encoding="utf-8")
        return (path,)
    address = link(candidate.url, ATTESTATION)
    beside = fetch.page(address, _ACCEPT) if candidate.described else None
    if beside is not None:
        path = folder / ATTESTATION
        path.write_bytes(beside.body)
        return (path,)
    return ()


def verify_signature(
    path: Path,
    candidate: OfferedWheel,
    fetch: Fetch,
    folder: Path,
    trust: Trust,
    version: Version | None,
) -> CheckResult:
    """Verify who made a downloaded wheel; the result says who, or why nothing was verified.

    Args:
        path: the wheel.
        candidate: what the index says of it.
        fetch: where attestations come from.
        folder: where they may be written.
        trust: whose wheels are believed.
        version: the version that the tag must be of; None: any, as that of a bundled package is.

    Raises:
        TorchwheelError: an attestation that does not hold, or none of the repository.
        ModuleNotFoundError: a repository was named, and torchwheel[evidence] is not installed.
    """
    project = canonicalize_name(candidate.file.partition("-")[0])
    repository = None if project in trust.unsigned else trust.repository
    bundles = find_bundles(candidate, folder, fetch)
    if not bundles and repository is None:
        return CheckResult(_NAME, False, "the index offers no attestation")
    if not bundles:
        raise _refused(path, f"expected an attestation by {repository}, found none in the index")
    try:
        from torchwheel.evidence.bundles import open_verifier  # noqa: PLC0415 - of the extra
    except ModuleNotFoundError:
        if repository is not None:
            raise
        return CheckResult(
            _NAME, False, "not verified: the extra `evidence` (sigstore) is not installed"
        )
    from torchwheel.matrix.sections import ISSUER  # noqa: PLC0415 - of the extra

    read = open_verifier(trust.trusted_root).read
    subject = (path.name, candidate.sha256)
    own = [one for bundle in bundles for one in read(bundle) if subject in one.subjects]
    if not own:
        says = "expected an attestation of this name and hash, found those of others"
        raise _refused(path, says)
    if repository is None:
        return CheckResult(_NAME, True, f"{_who(own[0].signer)}; --repository makes it a condition")
    policy = wheel_policy(
        repository, ISSUER, version, workflow=trust.workflow, self_hosted=trust.self_hosted
    )
    best, checks = judge_attestations(own, policy)
    if wrong := [check.says for check in checks if not check.ok]:
        raise _refused(path, "; ".join(wrong))
    return CheckResult(_NAME, True, _who(best.signer))


def _refused(path: Path, says: str) -> TorchwheelError:
    return TorchwheelError(f"{escape(path.name)}: {says}; nothing was installed")


def _who(signer: Signer) -> str:
    where = f"{signer.repository}, {signer.workflow_path}, {signer.ref}"
    return f"{where}, commit {signer.commit}, on a {signer.runner} runner"
