"""The compiler cache of a build (sccache): its place, its variables and its server."""

import contextlib
import dataclasses
import json
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from torchwheel_runtime import process
from torchwheel_runtime.errors import TorchwheelError, UsageError
from torchwheel_runtime.files import write_text
from torchwheel_runtime.json_files import parse_json
from torchwheel_runtime.ownership import UntrustedError, trusted_path
from torchwheel_runtime.text import hide_secrets, quote

_SHARED = {"SCCACHE_DIRECT": "false"}
"""What the compiler reads decides on a hit alone: not the folder that it runs in, nor those that it
looks for headers in, which differ between Pythons."""
ENDLESS = {"SCCACHE_IDLE_TIMEOUT": "0"}
"""A server ends with its build, not ten minutes after the last call: a compiler may take longer,
and would start again without the cache."""
_BUCKET = re.compile(r"s3://([a-z0-9][a-z0-9.-]+)(?:/([\w./-]*))?", re.ASCII)
_VERSION = re.compile(r"sccache (\d+)\.(\d+)", re.ASCII)
_SINCE = (0, 9)
"""The first release whose server can listen on a socket in a folder. An older one serves every user
of the machine on a port: it runs what they name, with the rights of whoever started it."""
_SHARED_TEMPORARY = "/tmp"  # noqa: S108 - a folder of our own is made in it
_LONGEST = 100
"""Bytes that a socket's path may have on every system."""
_FILES = ("C/C++", "CUDA", "HIP")
_LOG = "log"
_START_SECONDS, _WRITE_SECONDS, _END_SECONDS, _POLL = 60, 120, 30, 0.02


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


@dataclasses.dataclass(frozen=True)
class SchedulerAccess:
    """How sccache reaches the scheduler of a cluster of build servers.

    Attributes:
        url: its address, e.g. "https://builds.example:10600".
        token: what it knows its clients by.
    """

    url: str
    token: str = dataclasses.field(repr=False)

    @property
    def settings(self) -> str:
        """Sccache's settings (TOML) that send compilers to the cluster."""
        url, token = json.dumps(self.url), json.dumps(self.token)
        return f'[dist]\nscheduler_url = {url}\n[dist.auth]\ntype = "token"\ntoken = {token}\n'


@dataclasses.dataclass(frozen=True)
class _Counts:
    """A count for each language."""

    counts: Mapping[str, int]


@dataclasses.dataclass(frozen=True)
class CompilerStatistics:
    """What is read of sccache's statistics.

    Attributes:
        cache_hits: compilers that did not run.
        cache_misses: compilers that ran.
        cache_writes: objects that the cache took.
        cache_write_errors: objects that it did not take.
        dist_compiles: compilers that ran on each build server, by its address.
        dist_errors: compilers that a build server failed to run.
    """

    cache_hits: _Counts
    cache_misses: _Counts
    cache_writes: int
    cache_write_errors: int
    dist_compiles: Mapping[str, int] = dataclasses.field(default_factory=dict)
    dist_errors: int = 0


@dataclasses.dataclass(frozen=True)
class _Shown:
    stats: CompilerStatistics


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
            f"--cache {quote(hide_secrets(text))}: expected a folder, redis://HOST:PORT or s3://BUCKET/PREFIX"
        )
    own = folder_cache(Path(text).absolute(), "20G")
    return CompilerCache(text, own.folder, {**_SHARED, **own.variables})


def folder_cache(folder: Path, size: str) -> CompilerCache:
    """The cache in a folder, which is made at the first object."""
    variables = {"SCCACHE_DIR": str(folder), "SCCACHE_CACHE_SIZE": size}
    return CompilerCache(str(folder), folder, variables)


def check_release(launcher: Sequence[str]) -> None:
    """Raise unless nobody else can reach the server of this sccache."""
    printed = process.run([*launcher, "--version"], timeout=_START_SECONDS).output.strip()
    found = _VERSION.match(printed)
    if found is None or (int(found[1]), int(found[2])) < _SINCE:
        raise TorchwheelError(
            f"{launcher[0]}: is not used: expected sccache 0.9 or newer, whose server no other "
            f"user can reach, found {quote(printed)}; update it"
        )


@contextlib.contextmanager
def own_server(
    launcher: Sequence[str],
    variables: Mapping[str, str],
    place: str,
    scheduler: SchedulerAccess | None = None,
) -> Iterator[dict[str, str]]:
    """A server of sccache for the block; gives the variables by which compilers find it.

    A server that runs already has another cache, goes on with the compilers of a build that was
    stopped, and may be another user's, who would get our variables. This one is reached by a socket
    in a folder that is closed to others. It ends with the block, or with this process.

    Args:
        launcher: sccache; nothing for no server.
        variables: its settings.
        place: the cache as an error names it.
        scheduler: of a cluster that compiles. The server alone gets its token.

    Raises:
        TorchwheelError: the cache cannot be reached, or this sccache has no such server.
    """
    if not launcher:
        yield {}
        return
    check_release(launcher)
    with _closed_folder() as folder:
        socket, log, settings = folder / "s", folder / _LOG, folder / "settings"
        mine = {**variables, **ENDLESS, "SCCACHE_SERVER_UDS": str(socket)}
        env = {**os.environ, **mine}
        own = {"SCCACHE_START_SERVER": "1", "SCCACHE_NO_DAEMON": "1"}
        if scheduler:
            write_text(settings, scheduler.settings)
            own |= {"SCCACHE_CONF": str(settings), "SCCACHE_LOG": "warn"}
        with log.open("wb") as output:
            server = subprocess.Popen(
                process.ending_with_parent(launcher),
                env={**env, **own},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        try:
            late = time.monotonic() + _START_SECONDS
            while not socket.exists():
                if server.poll() is not None or time.monotonic() > late:
                    said = process.ProcessResult(1, log.read_text("utf-8", "replace"))
                    reason = said.reason(re.compile("error|caused by", re.IGNORECASE))
                    raise TorchwheelError(hide_secrets(f"{place}: sccache cannot use it: {reason}"))
                time.sleep(_POLL)
            yield mine
        finally:
            # It writes its last objects before it ends. A run that was stopped starts no program.
            with contextlib.suppress(process.NotRunError, subprocess.TimeoutExpired):
                if socket.exists():
                    process.run([*launcher, "--stop-server"], env=env)
                    server.wait(_END_SECONDS)
            server.kill()
            server.wait()


@contextlib.contextmanager
def _closed_folder() -> Iterator[Path]:
    """A folder that others neither enter nor exchange, with a path short enough for a socket.

    It is among the other temporary files, unless others can change their folder.
    """
    for parent in (tempfile.gettempdir(), _SHARED_TEMPORARY):
        with tempfile.TemporaryDirectory(prefix="torchwheel-", dir=parent) as name:
            last = parent == _SHARED_TEMPORARY
            try:
                folder = trusted_path(Path(name))
            except UntrustedError:
                if last:
                    raise
            else:
                if last or len(os.fsencode(folder)) < _LONGEST:
                    yield folder
                    return


def server_log(environ: Mapping[str, str]) -> str:
    """What the build's own server has said so far."""
    return Path(environ["SCCACHE_SERVER_UDS"]).with_name(_LOG).read_text("utf-8", "replace")


def read_statistics(launcher: Sequence[str], environ: Mapping[str, str]) -> CompilerStatistics:
    """What the server counted so far."""
    command = [*launcher, "--show-stats", "--stats-format", "json"]
    done = process.run(command, env={**os.environ, **environ})
    done.require("sccache --show-stats")
    return parse_json(done.output, _Shown, "sccache --show-stats", others=True).stats


def wait_for_writes(launcher: Sequence[str], environ: Mapping[str, str]) -> CacheUse:
    """What the server did, when all its objects are in the cache.

    A compiler ends before its object is written, and a server that ends writes no more.
    """
    end = time.monotonic() + _WRITE_SECONDS
    while True:
        found = read_statistics(launcher, environ)
        hits, misses = found.cache_hits.counts, found.cache_misses.counts
        late = time.monotonic() > end
        if late or found.cache_writes + found.cache_write_errors >= sum(misses.values()):
            # nvcc's own parts (PTX, machine code) count apart.
            there, compiled = (sum(kind.get(name, 0) for name in _FILES) for kind in (hits, misses))
            return CacheUse(there, compiled, sum(misses.values()) - found.cache_writes)
        time.sleep(_POLL)
