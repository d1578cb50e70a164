"""Verifies files: each must be attested, by a job whose role may sign it."""

import contextlib
import dataclasses
import hashlib
import importlib.metadata
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from torchwheel.evidence.policy import Policy, Signer, judge_signer, role_text
from torchwheel.findings import CheckResult
from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.files import sha256, write_text
from torchwheel_runtime.json_files import read_json
from torchwheel_runtime.os_errors import explain
from torchwheel_runtime.ownership import trusted_path
from torchwheel_runtime.text import escape
from torchwheel_runtime.toolkit.cache import cache_path

TRUSTED_ROOT = "TORCHWHEEL_TRUSTED_ROOT"
LATEST = "latest"
"""Names the root of trust that Sigstore's own repository has now; asking for it needs a network."""
_FILE = "verified.json"
_MOST = 20_000


class VerifiedFiles:
    """Files that were verified under certain rules, so that an index verifies new ones alone.

    The list lies in the user's own cache, by the rules of `torchwheel_runtime.ownership`. Who can
    write there runs programs with the user's rights anyway. A list that cannot be used, or written,
    is none: then every signature is verified.
    """

    def __init__(self, folder: Path, rules: Sequence[str]) -> None:
        """Read the list of a folder.

        Args:
            folder: of the cache; created if it is missing.
            rules: all that decides whether a file and its bundle are believed.
        """
        self._path = folder / _FILE
        self._rules = rules
        self._keys: dict[str, None] = {}
        self._new: dict[str, None] = {}
        with contextlib.suppress(TorchwheelError, OSError):
            self._keys = dict.fromkeys(read_json(trusted_path(self._path), tuple[str, ...]))

    def key(self, name: str, digest: str, bundle: Path) -> str:
        """Of a file by its name and hex SHA-256, with the bundle that attests it."""
        facts = [*self._rules, name, digest, sha256(bundle)]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()

    def __contains__(self, key: str) -> bool:
        return key in self._keys

    def add(self, key: str) -> None:
        """Note that a file was verified; `save` keeps it."""
        self._new[key] = None

    def save(self) -> None:
        """Write the list, if there is something new."""
        if not self._new:
            return
        keys = [*self._keys, *self._new][-_MOST:]
        with contextlib.suppress(TorchwheelError, OSError):  # the cache cannot be used
            trusted_path(self._path.parent, create=True)
            write_text(self._path, json.dumps(keys, indent=0) + "\n")


def open_verified(policies: Sequence[Policy], trusted_root: str | None) -> VerifiedFiles | None:
    """The files that were verified under these policies and this root of trust.

    Args:
        policies: whose signatures are believed.
        trusted_root: as `open_verifier` takes it.

    Returns:
        None if nothing can be remembered: the root of trust is that of today, or there is no cache.
    """
    name = trusted_root or os.environ.get(TRUSTED_ROOT)
    if name == LATEST:
        return None
    try:
        root = sha256(Path(name)) if name else "of sigstore"
        folder = cache_path() / "evidence"
    except (OSError, TorchwheelError):
        return None
    # What verifies: a fault that is mended must not be remembered.
    versions = [importlib.metadata.version(name) for name in ("sigstore", "cryptography")]
    own = [sha256(path) for path in sorted(Path(__file__).parent.glob("*.py"))]
    return VerifiedFiles(folder, [root, *versions, *own, repr(tuple(policies))])


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
    """Whose signatures are believed, and how a bundle is verified.

    Attributes:
        policies: that of files made today; then, for published catalogues, those of earlier times.
        read: verifies a bundle file; raises a TorchwheelError.
        unsigned: hex SHA-256 of published catalogues that need no signature.
        verified: published catalogues that need not be verified again; None to verify each.
    """

    policies: tuple[Policy, ...]
    read: ReadBundle
    unsigned: frozenset[str] = frozenset()
    verified: VerifiedFiles | None = None

    @property
    def policy(self) -> Policy:
        """That of files made today."""
        return self.policies[0]


def judge_attestations(
    attestations: Sequence[Attestation], policy: Policy
) -> tuple[Attestation, tuple[CheckResult, ...]]:
    """The attestation that holds best, with the checks of its signer.

    A file may be attested where it was built and again where it was published.
    """
    judged = [(one, judge_signer(one.signer, policy)) for one in attestations]
    return min(judged, key=lambda pair: sum(not check.ok for check in pair[1]))


def verify_files(
    files: Mapping[Path, frozenset[str]], bundles: Iterable[Path], believed: Believed
) -> Mapping[Path, Attestation]:
    """The attestation of each file; no file may be read before.

    Args:
        files: each with the roles of which one must have signed it.
        bundles: the bundle files that came with them.
        believed: whose signatures count, by the policy of today.

    Raises:
        TorchwheelError: a line for each bundle and each file that is not to be believed.
    """
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
    found: dict[Path, Attestation] = {}
    for path, roles in files.items():
        try:
            found[path] = _find_attestation(path, roles, attestations, believed.policy)
        except (OSError, TorchwheelError) as error:
            faults.append(explain(error))
    if faults:
        raise TorchwheelError(*faults)
    return found


def _find_attestation(
    path: Path, roles: frozenset[str], attestations: Sequence[Attestation], policy: Policy
) -> Attestation:
    """The attestation of a file by a job of one of `roles`; one line if there is none."""
    where = escape(str(path))
    if not path.is_file():
        raise TorchwheelError(f"{where}: expected a file, found none")
    digest = sha256(path)
    if own := [one for one in attestations if (path.name, digest) in one.subjects]:
        for attestation in own:
            if policy.roles_of(attestation.signer) & roles:
                return attestation
        found = role_text(policy.roles_of(own[0].signer), policy)
        expected = role_text(roles & policy.workflows.keys(), policy)
        says = f"expected a signature of {expected}, found one of {found}"
        raise TorchwheelError(f"{where}: {says}: {escape(str(own[0].bundle))}")
    for attestation in attestations:
        bundle = escape(str(attestation.bundle))
        if names := sorted(name for name, known in attestation.subjects if known == digest):
            says = f"expected the name {escape(names[0])}, as {bundle} attests its bytes"
            raise TorchwheelError(f"{where}: {says}")
    for attestation in attestations:
        # Of the artifact that the file is in: a record of another one may have the same name.
        if not path.is_relative_to(attestation.bundle.parent.parent):
            continue
        if known := sorted(sha for name, sha in attestation.subjects if name == path.name):
            says = f"expected sha256 {' or '.join(known)}, as {attestation.bundle} attests"
            raise TorchwheelError(f"{where}: {escape(says)}, found {digest}")
    raise TorchwheelError(
        f"{where}: expected a signature, found none; the job that makes it must attest it, and the "
        "bundle must come with it"
    )


def verify_published(files: Iterable[Path], believed: Believed) -> None:
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


def _verify_asset(path: Path, believed: Believed) -> None:
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


def _attestation_of(path: Path, digest: str, bundle: Path, believed: Believed) -> Attestation:
    """The attestation of an asset that one of the policies believes."""
    attestations = believed.read(bundle)
    asset = {path: frozenset({"release"})}
    refusals: list[TorchwheelError] = []
    for policy in believed.policies:
        try:
            return verify_files(asset, [bundle], Believed((policy,), lambda _: attestations))[path]
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
