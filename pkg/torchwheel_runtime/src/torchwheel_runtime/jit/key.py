"""The request for a library of the cache: everything that decides its bytes, and its key."""

import dataclasses
import functools
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from torchwheel_runtime.errors import TorchwheelError, UsageError

SCHEMA = 1
"""The version of the cache's format; libraries of another version are ignored."""


@dataclasses.dataclass(frozen=True)
class CacheKey:
    """Names a library in the cache.

    Attributes:
        target: digest of everything but the sources: builds of one target can share objects.
        content: digest of the target and the sources.
    """

    target: str
    content: str

    @property
    def name(self) -> str:
        """The operator's name, e.g. "fusedops.bias_act"."""
        return self.target.rpartition("-")[0]


@dataclasses.dataclass(frozen=True)
class LibraryRequest:
    """Everything that decides a library's bytes.

    Attributes:
        name: the operator's name, e.g. "fusedops.bias_act".
        archs: the arch list, e.g. ("9.0",).
        toolkit: the exact versions of the toolkit and the host compiler, e.g.
            "CUDA 13.0.88, gcc 12.2.0".
        torch: torch's release and ABI flavour, e.g. "2.13.0+cu130 stable"; "any" for a kernel
            library.
        commands: every command of the build, without this machine's folders; see `strip_folders`.
        own_sources: a digest of torchwheel's own headers and sources.
        source: the folder that the sources were read from; it is not part of the key.
        files: the bytes of every source and header, by its path relative to that folder.
    """

    name: str
    archs: tuple[str, ...]
    toolkit: str
    torch: str
    commands: tuple[tuple[str, ...], ...]
    own_sources: str
    source: Path
    files: Mapping[str, bytes]

    @functools.cached_property
    def key(self) -> CacheKey:
        """The library's key in the cache."""
        names = ("name", "archs", "toolkit", "torch", "commands", "own_sources")
        facts = {name: getattr(self, name) for name in names}
        target = _digest([SCHEMA, facts])
        hashes = {path: hashlib.sha256(data).hexdigest() for path, data in self.files.items()}
        # A readable name that every file system takes.
        name = re.sub(r"[^\w.-]", "_", self.name, flags=re.ASCII).lstrip(".-")[:80]
        return CacheKey(f"{name}-{target[:16]}", _digest([target, hashes])[:32])


def _digest(data: object) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def read_sources(folder: Path, globs: Iterable[str]) -> Mapping[str, bytes]:
    """The bytes of the files below `folder` that match the globs, e.g. "**/*.h", by their paths.

    Raises:
        UsageError: a glob matches no file.
        TorchwheelError: a file cannot be read.
    """
    paths: set[Path] = set()
    for pattern in globs:
        matches = {path for path in folder.glob(pattern) if path.is_file()}
        if not matches:
            raise UsageError(f"{folder}: no file matches {pattern!r}")
        paths |= matches
    try:
        return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(paths)}
    except OSError as error:
        raise TorchwheelError(f"{error.filename}: {error.strerror}") from error
