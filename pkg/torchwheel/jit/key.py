"""What a library is known by: a digest of all that decides its bytes, wherever that lies."""

import dataclasses
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

SCHEMA = 1
"""Counts the forms this cache has had; libraries of another form are not looked at."""


@dataclasses.dataclass(frozen=True)
class BuildFacts:
    """What decides a library's bytes besides its files.

    Attributes:
        name: what is built, e.g. "fusedops.bias_act".
        archs: the arch list, e.g. ("9.0",).
        toolkit: the toolkit and the host compiler, as exactly as they can be told apart, e.g.
            "CUDA 13.0.88, gcc 12.2.0".
        torch: torch's release and ABI flavour, e.g. "2.13.0+cu130 stable".
        commands: every command of the build, without this machine's folders; see `placeless`.
    """

    name: str
    archs: tuple[str, ...]
    toolkit: str
    torch: str
    commands: tuple[tuple[str, ...], ...]


@dataclasses.dataclass(frozen=True)
class CacheKey:
    """Names a library in the cache.

    Attributes:
        target: what is built for what, whatever its files hold: builds that can share objects.
        content: this very library.
    """

    target: str
    content: str

    @property
    def name(self) -> str:
        """What is built, e.g. "fusedops.bias_act"."""
        return self.target.rpartition("-")[0]


def make_key(facts: BuildFacts, files: Mapping[str, bytes]) -> CacheKey:
    """The key of what `facts` and `files` make.

    Args:
        facts: all but the files.
        files: every source and header: its path relative to the source folder, and its bytes.
    """
    told = _digest([SCHEMA, dataclasses.asdict(facts)])
    hashes = {path: hashlib.sha256(data).hexdigest() for path, data in files.items()}
    # A name that a person recognises, and a file system takes.
    name = re.sub(r"[^\w.-]", "_", facts.name, flags=re.ASCII).lstrip(".-")[:80]
    return CacheKey(f"{name}-{told[:16]}", _digest([told, hashes])[:32])


def strip_folders(
    commands: Iterable[Iterable[str]], places: Mapping[str, Path]
) -> tuple[tuple[str, ...], ...]:
    """Commands that are the same on every machine: folders of this one become their names.

    Args:
        commands: full command lines.
        places: folders by name, e.g. {"source": Path("/home/me/project")}. A folder inside another
            is the one that counts.
    """
    names = {str(path): name for name, path in sorted(places.items(), reverse=True)}
    if not names:
        return tuple(tuple(command) for command in commands)
    # A folder begins a word, or follows what begins a value (-I, -ffile-prefix-map=, :).
    folders = "|".join(re.escape(path) for path in sorted(names, key=len, reverse=True))
    pattern = re.compile(rf"(?:^|(?<=[=:,])|(?<=^-[A-Za-z]))({folders})(?=[/=:,]|\Z)")
    # No word of a command line has a NUL in it, so a name is never taken for a word's own text.
    return tuple(
        tuple(pattern.sub(lambda found: f"\0{names[found[1]]}\0", word) for word in command)
        for command in commands
    )


def _digest(data: object) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
