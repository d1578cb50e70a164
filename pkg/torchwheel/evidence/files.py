"""Verifies files: each must be attested, by a job whose role may sign it."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from torchwheel.evidence.policy import Policy, Signer, judge_signer, role_text
from torchwheel.evidence.verified import VerifiedFiles
from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.files import sha256
from torchwheel_runtime.os_errors import explain
from torchwheel_runtime.text import escape

ATTESTATION = "attestation.sigstore.json"
"""The file of a release that attests all others."""
BUNDLES = "evidence/*.sigstore.json"
"""Where the bundles of an artifact lie, in the artifact."""


@dataclasses.dataclass(frozen=True)
class Attestation:
    """A verified signature over files: who signed, when, and the names and hashes."""

    bundle: Path
    signer: Signer
    subjects: frozenset[tuple[str, str]]
    """File name and hex SHA-256."""
    signed: datetime
    """When the certificate was made, which is valid for minutes."""
    content: object = dataclasses.field(repr=False, hash=False)
    """The bundle, as JSON."""


ReadBundle = Callable[[Path], Sequence[Attestation]]
"""Verifies a bundle file; raises a TorchwheelError."""


@dataclasses.dataclass(frozen=True)
class Believed:
    """Whose signatures are believed, and the function that verifies a bundle."""

    policy: Policy
    read: ReadBundle


@dataclasses.dataclass(frozen=True)
class BelievedReleases:
    """Whose signatures of published catalogues are believed, and how a bundle is verified.

    Attributes:
        policies: one must hold; the first is that of releases made today.
        read: verifies a bundle file.
        unsigned: hex SHA-256 of the files that need no signature.
        verified: files that need not be verified again; None to verify each.
    """

    policies: tuple[Policy, ...]
    read: ReadBundle
    unsigned: frozenset[str] = frozenset()
    verified: VerifiedFiles | None = None


@dataclasses.dataclass(frozen=True)
class Evidence:
    """The attestations that a policy believes."""

    policy: Policy
    attestations: tuple[Attestation, ...]

    def of(self, path: Path, roles: frozenset[str]) -> Attestation:
        """The attestation of a file by a job of one of `roles`.

        Raises:
            TorchwheelError: one line: there is none, it is of other bytes, or of another role.
        """
        where = escape(str(path))
        if not path.is_file():
            raise TorchwheelError(f"{where}: expected a file, found none")
        digest = sha256(path)
        if own := self._about((path.name, digest)):
            for attestation in own:
                if self.policy.roles_of(attestation.signer) & roles:
                    return attestation
            found = role_text(self.policy.roles_of(own[0].signer), self.policy)
            expected = role_text(roles & self.policy.workflows.keys(), self.policy)
            says = f"expected a signature of {expected}, found one of {found}"
            raise TorchwheelError(f"{where}: {says}: {escape(str(own[0].bundle))}")
        for attestation in self.attestations:
            bundle = escape(str(attestation.bundle))
            if names := sorted(name for name, known in attestation.subjects if known == digest):
                says = f"expected the name {escape(names[0])}, as {bundle} attests its bytes"
                raise TorchwheelError(f"{where}: {says}")
        for attestation in self.attestations:
            # Of the artifact that the file is in: a record of another one may have the same name.
            if not path.is_relative_to(attestation.bundle.parent.parent):
                continue
            if known := sorted(sha for name, sha in attestation.subjects if name == path.name):
                says = f"expected sha256 {' or '.join(known)}, as {attestation.bundle} attests"
                raise TorchwheelError(f"{where}: {escape(says)}, found {digest}")
        raise TorchwheelError(f"{where}: expected a signature, found none; {_ADVICE}")

    def _about(self, subject: tuple[str, str]) -> list[Attestation]:
        return [found for found in self.attestations if subject in found.subjects]


_ADVICE = "the job that makes it must attest it, and the bundle must come with it"


def read_evidence(bundles: Iterable[Path], believed: Believed) -> tuple[Evidence, list[str]]:
    """The attestations of bundle files, and a line for each that is not to be believed."""
    attestations: list[Attestation] = []
    faults: list[str] = []
    for path in bundles:
        try:
            for attestation in believed.read(path):
                checks = judge_signer(attestation.signer, believed.policy)
                if says := [check.says for check in checks if not check.ok]:
                    faults.append(f"{escape(str(path))}: {'; '.join(says)}")
                else:
                    attestations.append(attestation)
        except TorchwheelError as error:
            faults.append(str(error))
    return Evidence(believed.policy, tuple(attestations)), faults


def verify_files(
    files: Mapping[Path, frozenset[str]], bundles: Iterable[Path], believed: Believed
) -> Mapping[Path, Attestation]:
    """The attestation of each file; no file may be read before.

    Args:
        files: each with the roles of which one must have signed it.
        bundles: the bundle files that came with them.
        believed: whose signatures count.

    Raises:
        TorchwheelError: a line for each bundle and each file that is not to be believed.
    """
    evidence, faults = read_evidence(bundles, believed)
    found: dict[Path, Attestation] = {}
    for path, roles in files.items():
        try:
            found[path] = evidence.of(path, roles)
        except (OSError, TorchwheelError) as error:
            faults.append(explain(error))
    if faults:
        raise TorchwheelError(*faults)
    return found


def verify_published(files: Iterable[Path], believed: BelievedReleases) -> None:
    """Verify assets of releases, each by the attestation beside it; no file may be read before.

    Raises:
        TorchwheelError: a line for each bundle and each file that is not to be believed.
    """
    faults: list[str] = []
    for path in files:
        try:
            _verify_asset(path, believed)
        except (OSError, TorchwheelError) as error:
            faults.append(explain(error))
    if believed.verified is not None:
        believed.verified.save()
    if faults:
        raise TorchwheelError(*faults)


def _verify_asset(path: Path, believed: BelievedReleases) -> None:
    """Raise unless a file needs no signature, or one of the policies believes that it has."""
    if (digest := sha256(path)) in believed.unsigned:
        return
    bundle, where = path.with_name(ATTESTATION), escape(str(path))
    if not bundle.exists():
        raise TorchwheelError(
            f"{where}: expected a signature, found no {ATTESTATION} beside it; upload it to that "
            f"release, or write {digest} under evidence.unsigned in the matrix"
        )
    known = believed.verified
    key = known.key(path.name, digest, bundle) if known else ""
    if known and key in known:
        return
    attestation = _attestation_of(path, digest, bundle, believed)
    # The file is read again: it may be another one by now.
    if known and (path.name, digest) in attestation.subjects:
        known.add(key)


def _attestation_of(
    path: Path, digest: str, bundle: Path, believed: BelievedReleases
) -> Attestation:
    """The attestation of an asset that one of the policies believes."""
    attestations = believed.read(bundle)
    asset = {path: frozenset({"release"})}
    refusals: list[TorchwheelError] = []
    for policy in believed.policies:
        try:
            return verify_files(asset, [bundle], Believed(policy, lambda _: attestations))[path]
        except TorchwheelError as error:
            refusals.append(error)
    if not any((path.name, digest) in attestation.subjects for attestation in attestations):
        raise refusals[0]
    line, *_ = str(refusals[0]).splitlines()
    raise TorchwheelError(f"{line}; {_EARLIER}")


_EARLIER = (
    "if the project moved or its workflow was renamed, list the signer under evidence.earlier "
    "in the matrix"
)
