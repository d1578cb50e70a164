"""The keys of a root of trust for tests, and the file with which a verifier believes them."""

import base64
import dataclasses
import hashlib
import json
import tempfile
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

TRUSTED_ROOT = "trusted_root.json"
KEYS = ("authority", "ct", "log")


@dataclasses.dataclass(frozen=True)
class Root:
    """The keys of a certificate authority, a certificate log and a transparency log."""

    folder: Path
    keys: Mapping[str, ec.EllipticCurvePrivateKey]
    authority: x509.Certificate

    @property
    def trusted_root(self) -> Path:
        """The file that a verifier is given."""
        return self.folder / TRUSTED_ROOT


def open_root(folder: Path) -> Root:
    """The root of a folder; its keys are made if there are none."""
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
        _make_root(made)
        try:
            made.rename(folder)
        except OSError:  # another process was first
            if not (folder / TRUSTED_ROOT).exists():
                raise
    keys = {}
    for name in KEYS:
        key = serialization.load_pem_private_key((folder / f"{name}.pem").read_bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        keys[name] = key
    pem = (folder / "authority.crt").read_bytes()
    return Root(folder, keys, x509.load_pem_x509_certificate(pem))


def _make_root(folder: Path) -> None:
    keys = {name: ec.generate_private_key(ec.SECP256R1()) for name in KEYS}
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
    start = datetime(2020, 1, 1, tzinfo=timezone.utc)
    public = keys["authority"].public_key()
    authority = (
        x509.CertificateBuilder(name, name, public, x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + timedelta(days=36500))
        .add_extension(x509.BasicConstraints(ca=True, path_length=1), critical=True)
        .add_extension(key_usage(sign_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .sign(keys["authority"], hashes.SHA256())
    )
    for file, key in keys.items():
        (folder / f"{file}.pem").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
    (folder / "authority.crt").write_bytes(authority.public_bytes(serialization.Encoding.PEM))
    valid = {"start": "2020-01-01T00:00:00Z"}

    def log(key: ec.EllipticCurvePrivateKey) -> dict[str, Any]:
        return {
            "baseUrl": "https://log.test",
            "hashAlgorithm": "SHA2_256",
            "publicKey": {
                "rawBytes": b64(_der_of(key)),
                "keyDetails": "PKIX_ECDSA_P256_SHA_256",
                "validFor": valid,
            },
            "logId": {"keyId": b64(key_id(key))},
        }

    chain = [{"rawBytes": b64(authority.public_bytes(serialization.Encoding.DER))}]
    trusted = {
        "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
        "tlogs": [log(keys["log"])],
        "certificateAuthorities": [
            {
                "subject": {"organization": "test", "commonName": "test authority"},
                "uri": "https://authority.test",
                "certChain": {"certificates": chain},
                "validFor": valid,
            }
        ],
        "ctlogs": [log(keys["ct"])],
        "timestampAuthorities": [],
    }
    (folder / TRUSTED_ROOT).write_text(json.dumps(trusted, indent=1))


def key_usage(*, sign_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not sign_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=sign_certificates,
        crl_sign=sign_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _der_of(key: ec.EllipticCurvePrivateKey) -> bytes:
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return key.public_key().public_bytes(serialization.Encoding.DER, form)


def key_id(key: ec.EllipticCurvePrivateKey) -> bytes:
    return hashlib.sha256(_der_of(key)).digest()


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()
