"""Whose signatures are believed: the policy as data, and the identity of a job that signed."""

import dataclasses
import fnmatch
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from torchwheel.errors import UsageError
from torchwheel.text import escape, join_names, quote

if TYPE_CHECKING:  # an index that asks for no signature reads no matrix
    from torchwheel.matrix.sections import EvidenceSection

GITHUB = "https://github.com"
RELEASES = "refs/tags/*"
"""The refs that releases are made from: who may push a branch may change the workflow there."""


@dataclasses.dataclass(frozen=True)
class Signer:
    """The job that signed, as its certificate says.

    The forge vouches for each field: it gave the job a token, and the certificate authority wrote
    the token's claims into the certificate. A job cannot choose them.
    """

    issuer: str
    repository: str
    workflow: str
    """Address of the workflow file with the job, of a called workflow its own, with `@` and ref."""
    caller: str
    """Address of the workflow that was started, which may have called that one."""
    workflow_commit: str
    commit: str
    ref: str
    runner: str
    """github-hosted or self-hosted."""
    run: str
    """Address of the run."""

    @property
    def workflow_path(self) -> str:
        """The workflow's path in the repository; its whole address if it is in another one."""
        return self.workflow.removeprefix(f"{self.repository}/").rpartition("@")[0]


@dataclasses.dataclass(frozen=True)
class Policy:
    """Whose signatures are believed; None is anything."""

    repository: str
    issuer: str
    workflows: Mapping[str, str]
    """The path of a workflow file by role: build, smoke, kernels, release. Empty: any workflow."""
    commit: str | None = None
    ref: str | None = None
    """A ref or a pattern of refs, e.g. refs/tags/v*."""

    def roles_of(self, signer: Signer) -> frozenset[str]:
        """The roles whose workflow file has the job that signed."""
        return frozenset(
            role
            for role, path in self.workflows.items()
            if signer.workflow == f"{self.repository}/{path}@{signer.ref}"
        )


@dataclasses.dataclass(frozen=True)
class EvidenceCheck:
    """One field of a signer held against the policy."""

    name: str
    ok: bool
    says: str


def judge_signer(signer: Signer, policy: Policy) -> tuple[EvidenceCheck, ...]:
    """Hold every field that the policy names against it."""
    return (
        _compare("issuer", signer.issuer, policy.issuer),
        _compare("repository", signer.repository, policy.repository),
        _compare("commit", signer.commit, policy.commit),
        _compare("ref", signer.ref, policy.ref),
        _judge_workflow(signer, policy),
    )


def _compare(name: str, found: str, expected: str | None) -> EvidenceCheck:
    # A pattern is for refs; no other field may hold a pattern's characters.
    if expected is None or found == expected:
        return EvidenceCheck(name, True, escape(found))
    if name == "ref" and fnmatch.fnmatchcase(found, expected):
        return EvidenceCheck(name, True, escape(found))
    return EvidenceCheck(name, False, f"expected {name} {expected}, found {_found(found)}")


def _judge_workflow(signer: Signer, policy: Policy) -> EvidenceCheck:
    path = signer.workflow_path
    if signer.workflow_commit != signer.commit:
        # A called workflow of another commit would run with the right sources and another recipe.
        says = f"expected workflow {_found(path)} of commit {_found(signer.commit)}"
        return EvidenceCheck("workflow", False, f"{says}, found {_found(signer.workflow_commit)}")
    if policy.workflows:
        if policy.roles_of(signer):
            return EvidenceCheck("workflow", True, escape(path))
        if signer.workflow == f"{signer.repository}/{path}@{signer.ref}" and (
            signer.repository != policy.repository and path in policy.workflows.values()
        ):
            # The repository is another one, which is a fault of its own.
            return EvidenceCheck("workflow", True, escape(path))
        expected = " or ".join(dict.fromkeys(policy.workflows.values()))
    else:
        if signer.workflow.startswith(f"{policy.repository}/"):
            return EvidenceCheck("workflow", True, escape(path))
        expected = f"one of {policy.repository}"
    return EvidenceCheck("workflow", False, f"expected workflow {expected}, found {_found(path)}")


def _found(text: str) -> str:
    return escape(text[:200]) if text else quote(text)


def policy_of(
    section: "EvidenceSection | None",
    where: str,
    *,
    repository: str | None = None,
    commit: str | None = None,
    ref: str | None = None,
) -> Policy:
    """The policy of a matrix for one commit or one pattern of refs.

    Args:
        section: `evidence` of the matrix.
        where: the matrix, for messages.
        repository: overrides the matrix's, as a forge's job knows where it runs.
        commit: the commit that every file must be made from.
        ref: the ref, or pattern of refs, that every file must be made from.
    """
    if section is None:
        raise UsageError(
            f"{where}: expected a section `evidence`, found none; name there who signs"
        )
    address = repository or section.repository
    if address is None:
        raise UsageError(f"{where}: evidence: expected a repository, found none; {_ADVICE}")
    workflows = section.workflows.model_dump(exclude_none=True)
    return Policy(
        repository_address(address),
        section.issuer,
        workflows,
        commit_hash(commit) if commit else None,
        ref,
    )


def release_policies(
    section: "EvidenceSection | None", where: str, *, repository: str | None = None
) -> tuple[Policy, ...]:
    """The policies for releases: of today's repository and workflow, then of the earlier ones."""
    own = policy_of(section, where, repository=repository, ref=RELEASES)
    earlier = [
        dataclasses.replace(
            own,
            repository=origin.repository or own.repository,
            workflows={"release": origin.workflow or own.workflows["release"]},
        )
        for origin in (section.earlier if section else ())
    ]
    return (own, *earlier)


_ADVICE = f"name it there or with --repository {GITHUB}/OWNER/NAME"


def repository_address(text: str) -> str:
    """The address of a repository; OWNER/NAME is one of GitHub."""
    if re.fullmatch(r"[\w.-]+/[\w.-]+", text, re.ASCII):
        return f"{GITHUB}/{text}"
    if re.fullmatch(r"https?://[\w.:-]+(/[\w.-]+)+", text, re.ASCII):
        return text
    raise UsageError(
        f"--repository: expected OWNER/NAME or an address such as {GITHUB}/OWNER/NAME, "
        f"found {quote(text)}"
    )


def commit_hash(text: str) -> str:
    """The hash of a commit, whole."""
    if re.fullmatch("[0-9a-f]{40}|[0-9a-f]{64}", text):
        return text
    raise UsageError(f"--commit: expected 40 hexadecimal digits, found {quote(text)}")


def role_text(roles: frozenset[str], policy: Policy) -> str:
    """Roles with their workflow files, e.g. `build (.github/workflows/wheels.yml)`."""
    return join_names(f"{role} ({policy.workflows[role]})" for role in sorted(roles))
