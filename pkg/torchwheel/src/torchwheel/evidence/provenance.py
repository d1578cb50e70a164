"""PEP 740's provenance of a wheel: made of a sigstore bundle, and read as bundles again."""

import dataclasses
import json
from pathlib import PurePosixPath
from typing import Any

from torchwheel.evidence.files import Attestation
from torchwheel.evidence.policy import GITHUB, Signer
from torchwheel_runtime.errors import MalformedError
from torchwheel_runtime.json_files import parse_json

_MOST = 100
"""Attestations of one file that are read."""
SUFFIX = ".provenance"
"""Ends the name of the file with the PEP 740 provenance of a wheel, after the wheel's name."""


def provenance_text(attestation: Attestation) -> str | None:
    """The provenance of a wheel as an index serves it (PEP 740): an object with one attestation.

    Nobody uploads to a static index, so the Trusted Publisher that the PEP wants is the job that
    built and signed the wheel, as its certificate says.

    Returns:
        JSON; None if the attestation is of several files, or not of a job of GitHub's: readers of
        provenance know no other forge of ours by its certificate.
    """
    publisher = _publisher(attestation.signer)
    if publisher is None or len(attestation.subjects) != 1:
        return None
    bundle = {"publisher": publisher, "attestations": [_attestation(attestation.content)]}
    return json.dumps({"version": 1, "attestation_bundles": [bundle]}, indent=1) + "\n"


def _publisher(signer: Signer) -> dict[str, object] | None:
    if not signer.repository.startswith(f"{GITHUB}/"):
        return None
    return {
        "kind": "GitHub",
        "claims": {},  # an index keeps those of an upload
        "repository": signer.repository.removeprefix(f"{GITHUB}/"),
        "workflow": PurePosixPath(signer.caller.rpartition("@")[0]).name,
        "environment": None,
    }


def _attestation(bundle: Any) -> dict[str, object]:  # noqa: ANN401 - JSON that sigstore has verified
    material, envelope = bundle["verificationMaterial"], bundle["dsseEnvelope"]
    return {
        "version": 1,
        "verification_material": {
            "certificate": material["certificate"]["rawBytes"],
            "transparency_entries": material["tlogEntries"],
        },
        "envelope": {
            "statement": envelope["payload"],
            "signature": envelope["signatures"][0]["sig"],
        },
    }


@dataclasses.dataclass(frozen=True)
class _Material:
    certificate: str
    transparency_entries: tuple[dict[str, object], ...]


@dataclasses.dataclass(frozen=True)
class _Envelope:
    statement: str
    signature: str


@dataclasses.dataclass(frozen=True)
class _Attestation:
    verification_material: _Material
    envelope: _Envelope


@dataclasses.dataclass(frozen=True)
class _Publisher:
    attestations: tuple[_Attestation, ...]


@dataclasses.dataclass(frozen=True)
class _Published:
    """PEP 740's provenance, as far as it is read."""

    attestation_bundles: tuple[_Publisher, ...]


def bundles_of_provenance(content: bytes, where: str) -> str:
    """The attestations of a PEP 740 provenance as sigstore bundles, one a line."""
    provenance = parse_json(content, _Published, where, others=True)
    found = [one for of in provenance.attestation_bundles for one in of.attestations]
    if not 0 < len(found) <= _MOST:
        reason = f"expected 1 to {_MOST} attestations, found {len(found)}"
        raise MalformedError(where, reason)
    return "".join(f"{json.dumps(_bundle(one))}\n" for one in found)


def _bundle(attestation: _Attestation) -> dict[str, object]:
    material, envelope = attestation.verification_material, attestation.envelope
    return {
        "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
        "verificationMaterial": {
            "certificate": {"rawBytes": material.certificate},
            "tlogEntries": list(material.transparency_entries),
        },
        "dsseEnvelope": {
            "payload": envelope.statement,
            "payloadType": "application/vnd.in-toto+json",
            "signatures": [{"sig": envelope.signature}],
        },
    }
