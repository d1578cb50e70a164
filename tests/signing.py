"""A root of trust for tests: signs files as a job of a workflow on the forge would.

The certificate, the certificate log, the transparency log and the signature are real; only their
keys are made here. So a bundle passes sigstore's own verifier with this root, and with no other.
Needs `cryptography`, which sigstore brings.

    python tests/signing.py --root FOLDER trust
        makes the keys if there are none, and prints the path of FOLDER/trusted_root.json:
        TORCHWHEEL_TRUSTED_ROOT=FOLDER/trusted_root.json lets torchwheel believe it

    python tests/signing.py --root FOLDER sign \
        --repository https://github.com/OWNER/NAME --commit SHA40 --ref refs/tags/v1.0.0 \
        --workflow .github/workflows/wheels.yml --caller .github/workflows/release.yml \
        --bundle dist/evidence/cu130-stable.sigstore.json FILE…
        writes one bundle over all files, as actions/attest-build-provenance does.
        --workflow  the file with the job: of a called (reusable) workflow its own. It decides the
                    role: matrix.yaml's `evidence.workflows` maps roles to these files
        --caller    the workflow that was started; default: the same as --workflow
        --checksums FILE   takes the subjects from a SHA256SUMS instead of FILE… (or beside them)
        --runner self-hosted   of a job on a machine of one's own; default: github-hosted
        --run, --issuer, --trigger   other parts of the job's identity
"""

import argparse
import dataclasses
import hashlib
import json
import struct
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from signing_root import Root, b64, key_id, key_usage, open_root

GITHUB = "https://token.actions.githubusercontent.com"
PREDICATE_TYPE = "https://slsa.dev/provenance/v1"
PAYLOAD_TYPE = "application/vnd.in-toto+json"


@dataclasses.dataclass(frozen=True)
class Job:
    """The identity of a job, as the forge's OIDC token states it."""

    repository: str
    workflow: str
    commit: str
    ref: str = "refs/tags/v1.0.0"
    caller: str = ""
    issuer: str = GITHUB
    runner: str = "github-hosted"
    trigger: str = "push"
    run: str = "1/attempts/1"

    @property
    def signer(self) -> str:
        """The address of the workflow file with the job."""
        return f"{self.repository}/{self.workflow}@{self.ref}"

    @property
    def invocation(self) -> str:
        """The address of the run."""
        return f"{self.repository}/actions/runs/{self.run}"

    def extensions(self) -> dict[int, str]:
        """Number below 1.3.6.1.4.1.57264.1 and value, as the certificate authority writes them."""
        name = self.repository.partition("://")[2].partition("/")[2]
        caller = self.caller or self.workflow
        return {
            1: self.issuer,
            2: self.trigger,
            3: self.commit,
            4: "release",
            5: name,
            6: self.ref,
            8: self.issuer,
            9: self.signer,
            10: self.commit,
            11: self.runner,
            12: self.repository,
            13: self.commit,
            14: self.ref,
            18: f"{self.repository}/{caller}@{self.ref}",
            19: self.commit,
            20: self.trigger,
            21: self.invocation,
            22: "public",
        }


def certificate(
    root: Root,
    job: Job,
    public: ec.EllipticCurvePublicKey,
    at: datetime,
    *,
    without: Sequence[int] = (),
) -> x509.Certificate:
    """A certificate of ten minutes for a key of this job, with the promise of the certificate log.

    Args:
        root: signs it.
        job: whose identity it states.
        public: the key.
        at: its first second.
        without: numbers of extensions that it lacks.
    """
    builder = (
        x509.CertificateBuilder(
            root.authority.subject, x509.Name([]), public, x509.random_serial_number()
        )
        .not_valid_before(at)
        .not_valid_after(at + timedelta(minutes=10))
        .add_extension(key_usage(sign_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(root.authority.public_key()),  # type: ignore[arg-type]
            critical=False,
        )
        .add_extension(
            x509.SubjectAlternativeName([x509.UniformResourceIdentifier(job.signer)]),
            critical=True,
        )
    )
    for number, value in job.extensions().items():
        if number in without:
            continue
        # The first six are plain text, the later ones DER.
        data = value.encode() if number <= 6 else _der(0x0C, value.encode())
        oid = x509.ObjectIdentifier(f"1.3.6.1.4.1.57264.1.{number}")
        builder = builder.add_extension(x509.UnrecognizedExtension(oid, data), critical=False)
    before = builder.sign(root.keys["authority"], hashes.SHA256())
    promise = x509.UnrecognizedExtension(
        x509.ObjectIdentifier("1.3.6.1.4.1.11129.2.4.2"),
        _certificate_promise(root, before.tbs_certificate_bytes, at),
    )
    return builder.add_extension(promise, critical=False).sign(
        root.keys["authority"], hashes.SHA256()
    )


def _certificate_promise(root: Root, body: bytes, at: datetime) -> bytes:
    """The list of one signed certificate timestamp (RFC 6962, 3.2 and 3.3)."""
    milliseconds = int(at.timestamp() * 1000)
    entry = key_id(root.keys["authority"]) + len(body).to_bytes(3, "big") + body
    signed = struct.pack("!BBQH", 0, 0, milliseconds, 1) + entry + struct.pack("!H", 0)
    signature = root.keys["ct"].sign(signed, ec.ECDSA(hashes.SHA256()))
    timestamp = (
        struct.pack("!B32sQH", 0, key_id(root.keys["ct"]), milliseconds, 0)
        + struct.pack("!BBH", 4, 3, len(signature))
        + signature
    )
    entries = struct.pack("!H", len(timestamp)) + timestamp
    return _der(0x04, struct.pack("!H", len(entries)) + entries)


def statement(subjects: Sequence[tuple[str, str]], job: Job) -> dict[str, Any]:
    """The in-toto statement with a SLSA provenance over file names and their hex SHA-256."""
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": name, "digest": {"sha256": sha}} for name, sha in subjects],
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "buildDefinition": {
                "buildType": "https://actions.github.io/buildtypes/workflow/v1",
                "externalParameters": {
                    "workflow": {
                        "ref": job.ref,
                        "repository": job.repository,
                        "path": job.caller or job.workflow,
                    }
                },
                "internalParameters": {
                    "github": {
                        "event_name": job.trigger,
                        "repository_id": "1",
                        "repository_owner_id": "1",
                        "runner_environment": job.runner,
                    }
                },
                "resolvedDependencies": [
                    {
                        "uri": f"git+{job.repository}@{job.ref}",
                        "digest": {"gitCommit": job.commit},
                    }
                ],
            },
            "runDetails": {
                "builder": {"id": job.signer},
                "metadata": {"invocationId": job.invocation},
            },
        },
    }


def bundle(
    root: Root,
    job: Job,
    content: Mapping[str, Any],
    *,
    at: datetime | None = None,
    logged_after: timedelta = timedelta(seconds=2),
    payload_type: str = PAYLOAD_TYPE,
    without: Sequence[int] = (),
) -> dict[str, Any]:
    """A sigstore bundle over a statement.

    Args:
        root: the keys.
        job: who signs.
        content: the statement.
        at: when the certificate was made; default: now.
        logged_after: how long after that the log has the signature.
        payload_type: what the envelope says that it holds.
        without: numbers of extensions that the certificate lacks.
    """
    at = (at or datetime.now(timezone.utc) - timedelta(seconds=5)).replace(microsecond=0)
    key = ec.generate_private_key(ec.SECP256R1())
    own = certificate(root, job, key.public_key(), at, without=without)
    payload = json.dumps(content).encode()
    to_sign = b"DSSEv1 %d %s %d %s" % (
        len(payload_type),
        payload_type.encode(),
        len(payload),
        payload,
    )
    signature = key.sign(to_sign, ec.ECDSA(hashes.SHA256()))
    return {
        "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
        "verificationMaterial": {
            "certificate": {"rawBytes": b64(own.public_bytes(serialization.Encoding.DER))},
            "tlogEntries": [log_entry(root, own, payload, signature, at + logged_after)],
            "timestampVerificationData": {"rfc3161Timestamps": []},
        },
        "dsseEnvelope": {
            "payload": b64(payload),
            "payloadType": payload_type,
            "signatures": [{"sig": b64(signature)}],
        },
    }


def log_entry(
    root: Root, own: x509.Certificate, payload: bytes, signature: bytes, at: datetime
) -> dict[str, Any]:
    """The entry of the transparency log, in a tree of two, with its proof and its promise."""
    key = root.keys["log"]
    pem = own.public_bytes(serialization.Encoding.PEM)
    body = _canonical(
        {
            "apiVersion": "0.0.1",
            "kind": "dsse",
            "spec": {
                "envelopeHash": {"algorithm": "sha256", "value": _sha256(signature + payload)},
                "payloadHash": {"algorithm": "sha256", "value": _sha256(payload)},
                "signatures": [{"signature": b64(signature), "verifier": b64(pem)}],
            },
        }
    )
    neighbour = hashlib.sha256(b"\0another entry").digest()
    tree = hashlib.sha256(b"\1" + hashlib.sha256(b"\0" + body).digest() + neighbour).digest()
    note = f"log.test\n2\n{b64(tree)}\n"
    signed_note = key_id(key)[:4] + key.sign(note.encode(), ec.ECDSA(hashes.SHA256()))
    seconds = int(at.timestamp())
    promised = {
        "body": b64(body),
        "integratedTime": seconds,
        "logID": key_id(key).hex(),
        "logIndex": 0,
    }
    promise = key.sign(_canonical(promised), ec.ECDSA(hashes.SHA256()))
    return {
        "logIndex": "0",
        "logId": {"keyId": b64(key_id(key))},
        "kindVersion": {"kind": "dsse", "version": "0.0.1"},
        "integratedTime": str(seconds),
        "inclusionPromise": {"signedEntryTimestamp": b64(promise)},
        "inclusionProof": {
            "logIndex": "0",
            "rootHash": b64(tree),
            "treeSize": "2",
            "hashes": [b64(neighbour)],
            "checkpoint": {"envelope": f"{note}\n— log.test {b64(signed_note)}\n"},
        },
        "canonicalizedBody": b64(body),
    }


def subjects_of(files: Sequence[Path], checksums: Sequence[Path] = ()) -> list[tuple[str, str]]:
    """File names and hex SHA-256 of files, and of the lines of SHA256SUMS.

    Files of two folders may have the same name.
    """
    subjects = [(file.name, _sha256(file.read_bytes())) for file in files]
    for sums in checksums:
        for line in sums.read_text(encoding="utf-8").splitlines():
            digest, name = line.split(maxsplit=1)
            subjects.append((name.removeprefix("*"), digest))
    return list(dict.fromkeys(subjects))


def sign_files(root: Root, job: Job, files: Sequence[Path], out: Path, **options: Any) -> Path:
    """Write the bundle of a job over files; `options` are those of `bundle`."""
    signed = bundle(root, job, statement(subjects_of(files), job), **options)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(signed) + "\n", encoding="utf-8")
    return out


def _der(tag: int, data: bytes) -> bytes:
    """One DER value of less than 64 KiB."""
    if len(data) < 128:
        return bytes([tag, len(data)]) + data
    return bytes([tag, 0x82]) + len(data).to_bytes(2, "big") + data


def _canonical(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def main(argv: Sequence[str] | None = None) -> int:
    """Make a root, or sign."""
    parser = argparse.ArgumentParser(description="A root of trust for tests.")
    parser.add_argument("--root", type=Path, required=True)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("trust")
    sign = commands.add_parser("sign")
    for name in ("repository", "workflow", "commit"):
        sign.add_argument(f"--{name}", required=True)
    for field in dataclasses.fields(Job):
        if field.name not in ("repository", "workflow", "commit"):
            sign.add_argument(f"--{field.name}", default=field.default)
    sign.add_argument("--bundle", type=Path, required=True)
    sign.add_argument("--checksums", type=Path, action="append", default=[])
    sign.add_argument("files", type=Path, nargs="*")
    options = parser.parse_args(argv)
    root = open_root(options.root)
    if options.command == "trust":
        print(root.trusted_root)
        return 0
    job = Job(**{field.name: getattr(options, field.name) for field in dataclasses.fields(Job)})
    subjects = subjects_of(options.files, options.checksums)
    if not subjects:
        parser.error("nothing to sign: name files or --checksums")
    signed = bundle(root, job, statement(subjects, job))
    options.bundle.parent.mkdir(parents=True, exist_ok=True)
    options.bundle.write_text(json.dumps(signed) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
