"""The compiler cache of a build (sccache): its place, its variables and its server."""

import contextlib
import dataclasses
import os
import re
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from torchwheel import process
from torchwheel.errors import TorchwheelError, UsageError
from torchwheel.json_files import parse_json
from torchwheel.text import hide_users, quote

_SHARED = {"SCCACHE_DIRECT": "false"}
"""What the compiler reads decides on a hit alone: not the folder that it runs in, nor those that it
looks for headers in, which differ between Pythons."""
ENDLESS = {"SCCACHE_IDLE_TIMEOUT": "0"}
"""A server ends with its build, not ten minutes after the last call: a compiler may take longer,
and would start again without the cache."""
_BUCKET = re.compile(r"s3://([a-z0-9][a-z0-9.-]+)(?:/([\w./-]*))?", re.ASCII)
_SOCKET = "s"
_FILES = ("C/C++", "CUDA", "HIP")
_WRITE_SECONDS, _POLL = 120, 0.05


@dataclasses.dataclass(frozen=True)
class CompilerCache:
    """A cache that several builds share.

    Attributes:
        text: how the user names it.
        folder: where it is; None for one behind a network.
        variables: sccache's settings.
    """

    text: str
    folder: Path | None
    variables: Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class CacheUse:
    """What a server did for the compilers of a build.

    Attributes:
        hits: compilers that did not run, as the object was there.
        misses: compilers that ran.
        failed: objects of these that the cache did not take.
    """

    hits: int = 0
    misses: int = 0
    failed: int = 0

    def __add__(self, other: "CacheUse") -> "CacheUse":
        """What two servers did."""
        return CacheUse(
            self.hits + other.hits, self.misses + other.misses, self.failed + other.failed
        )


@dataclasses.dataclass(frozen=True)
class _Counts:
    """A count for each language."""

    counts: Mapping[str, int]


@dataclasses.dataclass(frozen=True)
class _Statistics:
    """What is read of sccache's statistics."""

    cache_hits: _Counts
    cache_misses: _Counts
    cache_writes: int
    cache_write_errors: int


@dataclasses.dataclass(frozen=True)
class _Shown:
    stats: _Statistics


def parse_cache(text: str) -> CompilerCache:
    """The cache of `--cache`: a folder, redis://HOST:PORT or s3://BUCKET/PREFIX.

    The region, the endpoint and the keys of a bucket stay in the variables that sccache reads.
    """
    if text.startswith(("redis://", "rediss://")):
        return CompilerCache(text, None, {**_SHARED, "SCCACHE_REDIS_ENDPOINT": text})
    if found := _BUCKET.fullmatch(text):
        prefix = {"SCCACHE_S3_KEY_PREFIX": found[2]} if found[2] else {}
        return CompilerCache(text, None, {**_SHARED, "SCCACHE_BUCKET": found[1], **prefix})
    if "://" in text or not text:
        raise UsageError(
            f"--cache {quote(hide_users(text))}: expected a folder, redis://HOST:PORT or s3://BUCKET/PREFIX"
        )
    own = folder_cache(Path(text).absolute(), "20G")
    return CompilerCache(text, own.folder, {**_SHARED, **own.variables})


def folder_cache(folder: Path, size: str) -> CompilerCache:
    """The cache in a folder, which is made at the first object."""
    variables = {"SCCACHE_DIR": str(folder), "SCCACHE_CACHE_SIZE": size}
    return CompilerCache(str(folder), folder, variables)


@contextlib.contextmanager
def own_server(
    launcher: Sequence[str], variables: Mapping[str, str], place: str
) -> Iterator[dict[str, str]]:
    """A server of sccache for the block; gives the variables by which compilers find it.

    A server that runs already has another cache, and goes on with the compilers of a build that was
    stopped. This one ends with the block, or with the programs of this run. `place` is the cache as
    an error names it.

    Raises:
        TorchwheelError: the cache cannot be reached.
    """
    if not launcher:
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix="torchwheel-") as folder:
        mine = {**variables, **ENDLESS, "SCCACHE_SERVER_UDS": str(Path(folder, _SOCKET))}
        env = {**os.environ, **mine}
        started = process.run([*launcher, "--start-server"], env=env)
        if started.status:
            reason = started.reason(re.compile("error|caused by", re.IGNORECASE))
            raise TorchwheelError(hide_users(f"{place}: sccache cannot use it: {reason}"))
        try:
            yield mine
        finally:
            # It writes its last objects before it ends. A run that was stopped starts no program.
            with contextlib.suppress(process.NotRunError):
                process.run([*launcher, "--stop-server"], env=env)


def wait_for_writes(launcher: Sequence[str], environ: Mapping[str, str]) -> CacheUse:
    """What the server did, when all its objects are in the cache.

    A compiler ends before its object is written, and a server that ends writes no more.
    """
    end = time.monotonic() + _WRITE_SECONDS
    while True:
        command = [*launcher, "--show-stats", "--stats-format", "json"]
        done = process.run(command, env=environ)
        done.require("sccache --show-stats")
        found = parse_json(done.output, _Shown, "sccache --show-stats", others=True).stats
        hits, misses = found.cache_hits.counts, found.cache_misses.counts
        late = time.monotonic() > end
        if late or found.cache_writes + found.cache_write_errors >= sum(misses.values()):
            # nvcc's own parts (PTX, machine code) count apart.
            there, compiled = (sum(kind.get(name, 0) for name in _FILES) for kind in (hits, misses))
            return CacheUse(there, compiled, sum(misses.values()) - found.cache_writes)
        time.sleep(_POLL)
