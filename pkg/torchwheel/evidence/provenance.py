"""The provenance of a wheel as an index serves it (PEP 740), made of its build job's attestation.

The PEP wants a statement about one file, and names the signer as a Trusted Publisher. Nobody
uploads to a static index, so the publisher is the job that signed, as its certificate says.
"""

import json
from pathlib import PurePosixPath
from typing import Any

from torchwheel.evidence.files import Attestation
from torchwheel.evidence.policy import GITHUB, Signer

SUFFIX = ".provenance"
"""Ends the name of the file, after the name of the wheel."""


def provenance_text(attestation: Attestation) -> str | None:
    """A provenance object with one attestation.

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
