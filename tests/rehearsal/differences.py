"""What differs between two releases of the same tag, and why it may."""

import base64
import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping

_VARYING = {
    "a time": re.compile(r"\b20\d\d-\d\d-\d\d(T\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d))?"),
    "how long it took": re.compile(r'"(seconds|cpu_seconds|steps)": ([\d.]+|\{[^{}]*\})'),
    "memory that was used": re.compile(r'"peak_bytes": \d+'),
    "the number of a run": re.compile(r"/actions/runs/\d+/attempts/\d+"),
}
_BUNDLE = ".sigstore.json"


@dataclasses.dataclass(frozen=True)
class Differences:
    """The files that differ: those that may, each with the reasons, and those that may not."""

    allowed: Mapping[str, tuple[str, ...]]
    faults: tuple[str, ...]


def differences(one: Mapping[str, bytes], other: Mapping[str, bytes]) -> Differences:
    """Compare two releases, the bytes of each file by its name.

    A file may hold other times, durations and numbers of runs, and the hash of a file that differs.
    A bundle may have another signature of the same statement.
    """
    allowed: dict[str, tuple[str, ...]] = {}
    faults = [f"{name}: is in one of them alone" for name in sorted(one.keys() ^ other.keys())]
    changed = [name for name in sorted(one.keys() & other.keys()) if one[name] != other[name]]
    names = {_sha256(files[name]): name for files in (one, other) for name in changed}
    for name in changed:
        texts = [_text(name, files[name]) for files in (one, other)]
        reasons = ["the key, certificate and time of a signature"] if name.endswith(_BUNDLE) else []
        for reason, varying in _VARYING.items():
            if len({tuple(m[0] for m in varying.finditer(text)) for text in texts}) > 1:
                reasons.append(reason)
            texts = [varying.sub(f"<{reason}>", text) for text in texts]
        hashed = [_without_hashes(text, names) for text in texts]
        if hashed != texts:
            reasons.append("the hash of a file that differs")
        if len(set(hashed)) > 1:
            faults.append(f"{name}: {_first_difference(*hashed)}")
        else:
            allowed[name] = tuple(reasons)
    return Differences(allowed, tuple(faults))


def _text(name: str, data: bytes) -> str:
    if name.endswith(_BUNDLE):
        data = base64.b64decode(json.loads(data)["dsseEnvelope"]["payload"])
    return data.decode("utf-8", "backslashreplace")


def _without_hashes(text: str, names: Mapping[str, str]) -> str:
    return re.sub(r"\b[0-9a-f]{64}\b", lambda m: names.get(m[0], m[0]), text)


def _first_difference(one: str, other: str) -> str:
    lines = zip(one.splitlines(), other.splitlines(), strict=False)
    for first, second in lines:
        if first != second:
            return f"{first.strip()[:200]!r} and {second.strip()[:200]!r}"
    return "one is longer"


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
