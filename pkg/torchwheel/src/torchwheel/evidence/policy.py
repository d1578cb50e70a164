"""Whose signatures are believed: the policy as data, and the identity of a job that signed."""

import dataclasses
import fnmatch
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from packaging.utils import (
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version

from torchwheel.findings import CheckResult
from torchwheel_runtime.errors import UsageError
from torchwheel_runtime.text import escape, join_names, quote
from torchwheel_runtime.variant_format import split_name
from torchwheel_runtime.versions import has_long_number

if TYPE_CHECKING:  # an index that asks for no signature reads no matrix
    from torchwheel.matrix.sections import EvidenceSection

GITHUB = "https://github.com"
RELEASES = "refs/tags/VERSION"
"""Stands for the tags of releases, such as refs/tags/v1.0.0, which a project protects. Who may push
a branch or another tag may change the workflow there."""
CALLER = ".github/workflows/torchwheel.yml"
"""The workflow file of `torchwheel adopt`, which calls those of torchwheel's own repository."""
WORKFLOWS = {"build": ".github/workflows/wheels.yml", "release": ".github/workflows/release.yml"}
"""The workflow files of `torchwheel new` and `adopt` whose jobs sign wheels, by role."""
_HOSTED = "github-hosted"


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
    """The path of a workflow file by role: build, smoke, kernels, release."""
    commit: str | None = None
    ref: str | None = None
    """A ref or a pattern of refs, e.g. refs/tags/v*, or RELEASES."""
    version: Version | None = None
    """With RELEASES the version that the tag must be of; None: any version."""
    hosted: bool = False
    """Whether the job must have run on a machine of the forge's."""

    def is_called(self, signer: Signer) -> bool:
        """Whether the repository's own CALLER called a workflow of another repository.

        It names that one by its commit, so who may not change the caller cannot change it.
        """
        calls = signer.caller == f"{self.repository}/{CALLER}@{signer.ref}"
        return calls and not signer.workflow.startswith(f"{self.repository}/")

    def roles_of(self, signer: Signer) -> frozenset[str]:
        """The roles whose workflow file has the job that signed."""
        called = self.is_called(signer)
        return frozenset(
            role
            for role, path in self.workflows.items()
            if signer.workflow == f"{self.repository}/{path}@{signer.ref}"
            or (called and signer.workflow_path.endswith(f"/{path}"))
        )


def judge_signer(signer: Signer, policy: Policy) -> tuple[CheckResult, ...]:
    """Hold every field that the policy names against it."""
    return (
        _compare("issuer", signer.issuer, policy.issuer),
        _compare("repository", signer.repository, policy.repository),
        _compare("commit", signer.commit, policy.commit),
        _judge_ref(signer, policy),
        _judge_workflow(signer, policy),
        _compare("runner", signer.runner, _HOSTED if policy.hosted else None),
    )


def _compare(name: str, found: str, expected: str | None) -> CheckResult:
    # A pattern is for refs; no other field may hold a pattern's characters.
    if expected is None or found == expected:
        return CheckResult(name, True, escape(found))
    if name == "ref" and fnmatch.fnmatchcase(found, expected):
        return CheckResult(name, True, escape(found))
    return CheckResult(name, False, f"expected {name} {expected}, found {_found(found)}")


def _judge_ref(signer: Signer, policy: Policy) -> CheckResult:
    if policy.ref != RELEASES:
        return _compare("ref", signer.ref, policy.ref)
    found = version_of_ref(signer.ref)
    if found is not None and policy.version in (None, found):
        return CheckResult("ref", True, escape(signer.ref))
    expected = f"refs/tags/v{policy.version}" if policy.version else RELEASES
    says = f"expected ref {expected}, found {_found(signer.ref)}"
    return CheckResult("ref", False, says)


def version_of_ref(ref: str) -> Version | None:
    """The version of a tag such as refs/tags/v1.0.0 or refs/tags/1.0.0; None for any other ref."""
    match = re.fullmatch(r"refs/tags/v?([0-9].*)", ref)
    if match is None or has_long_number(ref):
        return None
    try:
        return Version(match[1])
    except InvalidVersion:
        return None


def version_of_file(name: str) -> Version | None:
    """The version in the name of a wheel or an sdist; None for another file."""
    try:
        parse = parse_wheel_filename if name.endswith(".whl") else parse_sdist_filename
        return parse(split_name(name)[0])[1]
    except ValueError:  # its subclasses for wheels and sdists, or a label that is none
        return None


def _judge_workflow(signer: Signer, policy: Policy) -> CheckResult:
    path = signer.workflow_path
    if signer.workflow_commit != signer.commit and not policy.is_called(signer):
        # A called workflow of another commit would run with the right sources and another recipe.
        says = f"expected workflow {_found(path)} of commit {_found(signer.commit)}"
        return CheckResult("workflow", False, f"{says}, found {_found(signer.workflow_commit)}")
    if policy.roles_of(signer) or (
        # The repository is another one, which is a fault of its own.
        signer.workflow == f"{signer.repository}/{path}@{signer.ref}"
        and signer.repository != policy.repository
        and path in policy.workflows.values()
    ):
        return CheckResult("workflow", True, escape(path))
    expected = " or ".join(dict.fromkeys(policy.workflows.values()))
    return CheckResult("workflow", False, f"expected workflow {expected}, found {_found(path)}")


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


def wheel_policy(
    repository: str,
    issuer: str,
    version: Version | None,
    *,
    workflow: str | None = None,
    self_hosted: bool = False,
    commit: str | None = None,
    ref: str | None = None,
) -> Policy:
    """The policy for a file that somebody has downloaded, who has no matrix that says who signs.

    Args:
        repository: whose workflow must have signed: OWNER/NAME or an address.
        issuer: who vouched for the job.
        version: of the file; the tag must be of its public part. None: of any version.
        workflow: the file of the workflow; default: the two that build and that release.
        self_hosted: whether a job on a machine of one's own is believed.
        commit: the commit.
        ref: the ref, or pattern of refs, in place of the tag of that version.
    """
    return Policy(
        repository_address(repository),
        issuer,
        {"named": workflow} if workflow else WORKFLOWS,
        commit_hash(commit) if commit else None,
        ref or RELEASES,
        Version(version.public) if version else None,
        hosted=not self_hosted,
    )


def release_policies(
    section: "EvidenceSection | None", where: str, *, repository: str | None = None
) -> tuple[Policy, ...]:
    """The policies for releases: of today's repository and workflow, then of the earlier ones."""
    own = policy_of(section, where, repository=repository, ref=RELEASES)
    earlier = [
        dataclasses.replace(
            own,
            ref="refs/tags/*",  # they may have had other names for their tags
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
