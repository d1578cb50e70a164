"""What everybody sees of the forge and of the package index must be complete at every moment."""

import hashlib
import re
from collections.abc import Iterator
from urllib.parse import unquote

from rehearsal.forge import Forge
from rehearsal.setting import Setting

SUMS, ATTESTATION = "SHA256SUMS", "attestation.sigstore.json"
_LINK = re.compile(r'href="([^"#]+/releases/download/([^/"]+)/([^"#]+))#sha256=([0-9a-f]{64})"')


def public_faults(setting: Setting) -> Iterator[str]:
    """A line for each release, page or upload that is half published."""
    yield from _release_faults(setting.forge)
    yield from _page_faults(setting.forge)
    hashes = {_sha256(path.read_bytes()) for _, _, path in setting.forge.published()}
    for path in sorted(setting.packages.iterdir()):
        if _sha256(path.read_bytes()) not in hashes:
            yield f"{path.name} is on the package index, but not an asset with these bytes"


def _release_faults(forge: Forge) -> Iterator[str]:
    for release in forge.releases:
        # One that somebody made by hand is of no tag that was pushed.
        if release.draft or release.tag not in forge.tags:
            continue
        for name, about in release.assets.items():
            if about["state"] != "uploaded":
                yield f"{release.tag}: {name} is public and was received in part"
        if missing := {SUMS, ATTESTATION} - release.assets.keys():
            yield f"{release.tag} is public without {', '.join(sorted(missing))}"
            continue
        for line in forge.asset(release, SUMS).read_text().splitlines():
            digest, name = line.split(maxsplit=1)
            if name not in release.assets:
                yield f"{release.tag} is public without {name}"
            elif _sha256(forge.asset(release, name).read_bytes()) != digest:
                yield f"{release.tag}: {name} is public with other bytes than {SUMS} says"
        if release.latest and release.prerelease:
            yield f"{release.tag}: a release candidate is the latest release"


def _page_faults(forge: Forge) -> Iterator[str]:
    """Each link of the index leads to a public asset with the hash of the link."""
    assets = {(tag, name): path for tag, name, path in forge.published()}
    pages = sorted(forge.pages.rglob("*.html")) if forge.pages.exists() else []
    for page in pages:
        for _, tag, name, digest in set(_LINK.findall(page.read_text(encoding="utf-8"))):
            path = assets.get((unquote(tag), unquote(name)))
            where = page.relative_to(forge.pages)
            if path is None:
                yield f"{where} links {name}, which nobody can download"
            elif _sha256(path.read_bytes()) != digest:
                yield f"{where} links {name} with another hash"


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
