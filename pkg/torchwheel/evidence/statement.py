"""The signed statement (in-toto) about files, and the SLSA provenance in it."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from torchwheel.errors import MalformedError
from torchwheel.evidence.policy import Signer
from torchwheel.json_files import parse_json
from torchwheel.text import KeyPath, dotted_path, escape, quote

PAYLOAD_TYPE = "application/vnd.in-toto+json"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")


Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class _Digest(_Part):
    sha256: Sha256


class _Subject(_Part):
    name: Annotated[str, Field(min_length=1)]
    digest: _Digest


class _Commit(_Part):
    commit: Annotated[str | None, Field(alias="gitCommit")] = None


class _Dependency(_Part):
    uri: str
    digest: _Commit


class _Definition(_Part):
    dependencies: Annotated[list[_Dependency], Field(alias="resolvedDependencies", min_length=1)]


class _Builder(_Part):
    id: str


class _Run(_Part):
    builder: _Builder


class _Provenance(_Part):
    definition: Annotated[_Definition, Field(alias="buildDefinition")]
    run: Annotated[_Run, Field(alias="runDetails")]


class _Statement(_Part):
    type: Annotated[Literal["https://in-toto.io/Statement/v1"], Field(alias="_type")]
    subjects: Annotated[list[_Subject], Field(alias="subject", min_length=1)]
    predicate_type: Annotated[
        Literal["https://slsa.dev/provenance/v1"], Field(alias="predicateType")
    ]
    predicate: _Provenance


def read_statement(payload: bytes, signer: Signer, where: str) -> frozenset[tuple[str, str]]:
    """The name and hex SHA-256 of each file that a signed statement is about.

    Args:
        payload: the statement; its signature was verified.
        signer: the job by its certificate. The provenance must not contradict it.
        where: the bundle, for messages.

    Raises:
        MalformedError: the statement is of another form, or says what the certificate denies.
    """
    document = parse_json(payload, dict[str, object], where)
    try:
        statement = _Statement.model_validate(document)
    except ValidationError as error:
        details = error.errors(include_url=False)[0]
        path: KeyPath = ("statement", *details["loc"])
        raise MalformedError(where, f"{dotted_path(path)}: {escape(details['msg'])}") from None
    builder = statement.predicate.run.builder.id
    # Before 2025 the forge's action named the runner in place of the workflow.
    if builder not in (signer.workflow, f"https://github.com/actions/runner/{signer.runner}"):
        raise _contradicts("builder", builder, signer.workflow, where)
    source = statement.predicate.definition.dependencies[0]
    if source.digest.commit != signer.commit:
        raise _contradicts("commit", str(source.digest.commit), signer.commit, where)
    if source.uri != f"git+{signer.repository}@{signer.ref}":
        raise _contradicts("source", source.uri, f"git+{signer.repository}@{signer.ref}", where)
    return frozenset((subject.name, subject.digest.sha256) for subject in statement.subjects)


def _contradicts(name: str, found: str, expected: str, where: str) -> MalformedError:
    reason = f"provenance: expected {name} {escape(expected)}, as the certificate, found"
    return MalformedError(where, f"{reason} {quote(found)}")
