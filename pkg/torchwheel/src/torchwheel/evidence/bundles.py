"""Verifies sigstore bundles: signature, certificate, logs, and the in-toto statement in them.

Offline: a bundle brings the proofs of both logs with it, and the root of trust is a file.
"""

import importlib.resources
import json
import os
import queue
import threading
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from cryptography.hazmat import asn1
from cryptography.x509 import Certificate, ExtensionNotFound, ObjectIdentifier
from pydantic import AliasPath, BaseModel, ConfigDict, Field, ValidationError
from sigstore.errors import Error as SigstoreError
from sigstore.errors import VerificationError
from sigstore.models import Bundle, TrustedRoot
from sigstore.verify import Verifier

from torchwheel.evidence.files import LATEST, TRUSTED_ROOT, Attestation
from torchwheel.evidence.policy import Signer
from torchwheel_runtime.errors import MalformedError, TorchwheelError
from torchwheel_runtime.json_files import parse_json, read_bounded
from torchwheel_runtime.os_errors import explain
from torchwheel_runtime.text import KeyPath, dotted_path, escape, quote, shorten_line

PAYLOAD_TYPE = "application/vnd.in-toto+json"
# Of 1.3.6.1.4.1.57264.1 (Fulcio's list of extensions), by field of Signer.
_EXTENSIONS = {
    "issuer": 8,
    "workflow": 9,
    "workflow_commit": 10,
    "runner": 11,
    "repository": 12,
    "commit": 13,
    "ref": 14,
    "caller": 18,
    "run": 21,
}
_MOST_BUNDLES = 100
_LATEST_SECONDS = 120.0
"""Of asking for Sigstore's own root of trust; its client waits as long as a byte comes."""


class BundleVerifier:
    """Verifies bundles against one root of trust."""

    def __init__(self, verifier: Verifier) -> None:
        self._verifier = verifier

    def read(self, path: Path) -> tuple[Attestation, ...]:
        """The attestations of a bundle file: one, or one a line of a `.jsonl` file.

        Raises:
            TorchwheelError: one line; nothing of the file may be believed.
        """
        where = escape(str(path))
        try:
            return tuple(self._verify(path, content) for content in _contents(path))
        except OSError as error:
            raise TorchwheelError(explain(error)) from None
        except MalformedError as error:
            raise TorchwheelError(f"{where}: not a sigstore bundle: {error.reason}") from None
        except SigstoreError as error:
            raise TorchwheelError(f"{where}: does not verify: {_line(error)}") from None

    def _verify(self, path: Path, content: object) -> Attestation:
        try:
            bundle = Bundle.from_json(json.dumps(content))
        # What an author wrote: the parsers below raise much else than their own errors.
        except Exception as error:
            raise MalformedError(str(path), _line(error)) from None
        signer = _SignerReader()
        try:
            kind, payload = self._verifier.verify_dsse(bundle, signer)
        except SigstoreError:
            raise
        # Fail closed: a check that breaks has not held.
        except Exception as error:
            text = f"the check broke: {type(error).__name__}: {error}"
            raise VerificationError(text) from None
        if kind != PAYLOAD_TYPE or signer.found is None:
            raise VerificationError(f"expected a payload {PAYLOAD_TYPE}, found {kind}")
        try:
            subjects = _read_statement(payload, signer.found, str(path))
        except MalformedError as error:
            raise VerificationError(error.reason) from None
        made: datetime = bundle.signing_certificate.not_valid_before_utc
        return Attestation(path, signer.found, subjects, made, content)


class _SignerReader:
    """A policy of sigstore's that takes any signer with an identity, and notes it."""

    def __init__(self) -> None:
        self.found: Signer | None = None

    def verify(self, cert: Certificate) -> None:
        """Read the identity; refuse a certificate without one."""
        self.found = Signer(**{name: _extension(cert, name) for name in _EXTENSIONS})


def _extension(certificate: Certificate, name: str) -> str:
    oid = ObjectIdentifier(f"1.3.6.1.4.1.57264.1.{_EXTENSIONS[name]}")
    try:
        value: Any = certificate.extensions.get_extension_for_oid(oid).value
    except ExtensionNotFound:
        says = f"the certificate names no {name.replace('_', ' ')} ({oid.dotted_string})"
        raise VerificationError(says) from None
    return str(asn1.decode_der(str, value.value))


def _contents(path: Path) -> Iterator[object]:
    data = read_bounded(path)
    lines = data.splitlines() if path.suffix == ".jsonl" else [data]
    if len(lines) > _MOST_BUNDLES:
        reason = f"expected at most {_MOST_BUNDLES} bundles, found {len(lines)}"
        raise MalformedError(str(path), reason)
    for line in lines:
        if line.strip() or len(lines) == 1:
            # Any JSON: sigstore's own models say what a bundle must have.
            yield parse_json(line, dict[str, object], str(path))


def _line(error: Exception) -> str:
    # pydantic's own text shows all of the input.
    for cause in (error, error.__context__):
        if isinstance(cause, ValidationError):
            details = cause.errors(include_url=False)[0]
            return escape(f"{dotted_path(details['loc'])}: {details['msg']}")
    return shorten_line(escape(" ".join(str(error).split())))


def open_verifier(trusted_root: str | None) -> BundleVerifier:
    """The verifier of a root of trust.

    Args:
        trusted_root: a file, or "latest" for what Sigstore's repository has now. Default:
            TORCHWHEEL_TRUSTED_ROOT, else the root that sigstore was published with.
    """
    name = trusted_root or os.environ.get(TRUSTED_ROOT)
    if name == LATEST:
        try:
            return BundleVerifier(_latest())
        except (SigstoreError, TimeoutError) as error:
            says = f"{_line(error)}; name a file with --trusted-root"
            raise TorchwheelError(f"Sigstore's root of trust cannot be had: {says}") from None
    return BundleVerifier(_verifier_of(Path(name)) if name else _packaged())


def _latest() -> Verifier:
    answers: queue.SimpleQueue[Verifier | Exception] = queue.SimpleQueue()

    def ask() -> None:
        try:
            answers.put(Verifier.production())
        except Exception as error:
            answers.put(error)

    threading.Thread(target=ask, daemon=True).start()
    try:
        answer = answers.get(timeout=_LATEST_SECONDS)
    except queue.Empty:
        raise TimeoutError(f"no answer in {_LATEST_SECONDS:g} s") from None
    if isinstance(answer, Exception):
        raise answer
    return answer


def _packaged() -> Verifier:
    store = importlib.resources.files("sigstore").joinpath("_store")
    file = store / "https%3A%2F%2Ftuf-repo-cdn.sigstore.dev" / "trusted_root.json"
    with importlib.resources.as_file(file) as path:
        return _verifier_of(path)


def _verifier_of(path: Path) -> Verifier:
    try:
        read_bounded(path)
        return Verifier(trusted_root=TrustedRoot.from_file(str(path)))
    except OSError as error:
        raise TorchwheelError(explain(error)) from None
    except MalformedError:
        raise
    except Exception as error:
        says = f"expected a sigstore trusted root, found {_line(error)}"
        raise TorchwheelError(f"{escape(str(path))}: {says}") from None


class _Signed(BaseModel):
    """Base of what is read of a signed statement (in-toto) and the SLSA provenance in it."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")


class _Subject(_Signed):
    name: Annotated[str, Field(min_length=1)]
    sha256: Annotated[
        str, Field(validation_alias=AliasPath("digest", "sha256"), pattern="^[0-9a-f]{64}$")
    ]


_SOURCE = ("predicate", "buildDefinition", "resolvedDependencies", 0)


class _Statement(_Signed):
    type: Annotated[Literal["https://in-toto.io/Statement/v1"], Field(alias="_type")]
    subjects: Annotated[list[_Subject], Field(alias="subject", min_length=1)]
    predicate_type: Annotated[
        Literal["https://slsa.dev/provenance/v1"], Field(alias="predicateType")
    ]
    source: Annotated[str, Field(validation_alias=AliasPath(*_SOURCE, "uri"))]
    commit: Annotated[
        str | None, Field(validation_alias=AliasPath(*_SOURCE, "digest", "gitCommit"))
    ] = None
    builder: Annotated[
        str, Field(validation_alias=AliasPath("predicate", "runDetails", "builder", "id"))
    ]


def _read_statement(payload: bytes, signer: Signer, where: str) -> frozenset[tuple[str, str]]:
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
    # Before 2025 the forge's action named the runner in place of the workflow.
    builders = (signer.workflow, f"https://github.com/actions/runner/{signer.runner}")
    if statement.builder not in builders:
        raise _contradicts("builder", statement.builder, signer.workflow, where)
    if statement.commit != signer.commit:
        raise _contradicts("commit", str(statement.commit), signer.commit, where)
    if statement.source != (source := f"git+{signer.repository}@{signer.ref}"):
        raise _contradicts("source", statement.source, source, where)
    return frozenset((subject.name, subject.sha256) for subject in statement.subjects)


def _contradicts(name: str, found: str, expected: str, where: str) -> MalformedError:
    reason = f"provenance: expected {name} {escape(expected)}, as the certificate, found"
    return MalformedError(where, f"{reason} {quote(found)}")
