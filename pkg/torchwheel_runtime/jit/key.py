"""The key of a library in the cache: a digest of everything that decides its bytes."""

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping

SCHEMA = 1
"""The version of the cache's format; libraries of another version are ignored."""


@dataclasses.dataclass(frozen=True)
class BuildFacts:
    """Everything but the sources that decides a library's bytes.

    Attributes:
        name: the operator's name, e.g. "fusedops.bias_act".
        archs: the arch list, e.g. ("9.0",).
        toolkit: the exact versions of the toolkit and the host compiler, e.g.
            "CUDA 13.0.88, gcc 12.2.0".
        torch: torch's release and ABI flavour, e.g. "2.13.0+cu130 stable"; "any" for a kernel
            library.
        commands: every command of the build, without this machine's folders; see `strip_folders`.
        own_sources: a digest of torchwheel's own headers and sources.
    """

    name: str
    archs: tuple[str, ...]
    toolkit: str
    torch: str
    commands: tuple[tuple[str, ...], ...]
    own_sources: str = ""


@dataclasses.dataclass(frozen=True)
class CacheKey:
    """Names a library in the cache.

    Attributes:
        target: digest of the build facts: builds of one target can share objects.
        content: digest of the build facts and the sources.
    """

    target: str
    content: str

    @property
    def name(self) -> str:
        """The operator's name, e.g. "fusedops.bias_act"."""
        return self.target.rpartition("-")[0]


def make_key(facts: BuildFacts, files: Mapping[str, bytes]) -> CacheKey:
    """The key of the library that `facts` and `files` build.

    Args:
        facts: everything but the sources.
        files: the bytes of every source and header, by its path relative to the source folder.
    """
    target = _digest([SCHEMA, dataclasses.asdict(facts)])
    hashes = {path: hashlib.sha256(data).hexdigest() for path, data in files.items()}
    # A readable name that every file system takes.
    name = re.sub(r"[^\w.-]", "_", facts.name, flags=re.ASCII).lstrip(".-")[:80]
    return CacheKey(f"{name}-{target[:16]}", _digest([target, hashes])[:32])


def _digest(data: object) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
