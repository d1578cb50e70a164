"""Remembers which files were verified, so that an index verifies the signatures of new ones alone.

The list lies in the user's own cache, by the rules of `torchwheel_runtime.ownership`. Who can write
there runs programs with the user's rights anyway. A list that cannot be used, or written, is none:
then every signature is verified.
"""

import contextlib
import hashlib
import importlib.metadata
import json
import os
from collections.abc import Sequence
from pathlib import Path

from torchwheel.evidence.policy import Policy
from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.files import sha256, write_text
from torchwheel_runtime.json_files import read_json
from torchwheel_runtime.ownership import trusted_path
from torchwheel_runtime.toolkit.cache import cache_path

TRUSTED_ROOT = "TORCHWHEEL_TRUSTED_ROOT"
LATEST = "latest"
"""Names the root of trust that Sigstore's own repository has now; asking for it needs a network."""
_FILE = "verified.json"
_MOST = 20_000


class VerifiedFiles:
    """Files that were verified under certain rules."""

    def __init__(self, folder: Path, rules: Sequence[str]) -> None:
        """Read the list of a folder.

        Args:
            folder: of the cache; created if it is missing.
            rules: all that decides whether a file and its bundle are believed.
        """
        self._path = folder / _FILE
        self._rules = rules
        self._keys: dict[str, None] = {}
        self._new: dict[str, None] = {}
        with contextlib.suppress(TorchwheelError, OSError):
            self._keys = dict.fromkeys(read_json(trusted_path(self._path), tuple[str, ...]))

    def key(self, name: str, digest: str, bundle: Path) -> str:
        """Of a file by its name and hex SHA-256, with the bundle that attests it."""
        facts = [*self._rules, name, digest, sha256(bundle)]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()

    def __contains__(self, key: str) -> bool:
        return key in self._keys

    def add(self, key: str) -> None:
        """Note that a file was verified; `save` keeps it."""
        self._new[key] = None

    def save(self) -> None:
        """Write the list, if there is something new."""
        if not self._new:
            return
        keys = [*self._keys, *self._new][-_MOST:]
        with contextlib.suppress(TorchwheelError, OSError):  # the cache cannot be used
            trusted_path(self._path.parent, create=True)
            write_text(self._path, json.dumps(keys, indent=0) + "\n")


def open_verified(policies: Sequence[Policy], trusted_root: str | None) -> VerifiedFiles | None:
    """The files that were verified under these policies and this root of trust.

    Args:
        policies: whose signatures are believed.
        trusted_root: as `open_verifier` takes it.

    Returns:
        None if nothing can be remembered: the root of trust is that of today, or there is no cache.
    """
    name = trusted_root or os.environ.get(TRUSTED_ROOT)
    if name == LATEST:
        return None
    try:
        root = sha256(Path(name)) if name else "of sigstore"
        folder = cache_path() / "evidence"
    except (OSError, TorchwheelError):
        return None
    # What verifies: a fault that is mended must not be remembered.
    versions = [importlib.metadata.version(name) for name in ("sigstore", "cryptography")]
    own = [sha256(path) for path in sorted(Path(__file__).parent.glob("*.py"))]
    return VerifiedFiles(folder, [root, *versions, *own, repr(tuple(policies))])
