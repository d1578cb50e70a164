"""The compiler cache of a build (sccache): its place, its variables and its server."""

import contextlib
import dataclasses
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from torchwheel import process
from torchwheel.errors import TorchwheelError, UsageError
from torchwheel.text import quote

_SHARED = {"SCCACHE_DIRECT": "false"}
"""What the compiler reads decides on a hit alone: not the folder that it runs in, nor those that it
looks for headers in, which differ between Pythons."""
_BUCKET = re.compile(r"s3://([a-z0-9][a-z0-9.-]+)(?:/([\w./-]*))?", re.ASCII)
_SOCKET = "s"


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
            f"--cache {quote(text)}: expected a folder, redis://HOST:PORT or s3://BUCKET/PREFIX"
        )
    own = folder_cache(Path(text).absolute(), "20G")
    return CompilerCache(text, own.folder, {**_SHARED, **own.variables})


def folder_cache(folder: Path, size: str) -> CompilerCache:
    """The cache in a folder, which is made at the first object."""
    variables = {"SCCACHE_DIR": str(folder), "SCCACHE_CACHE_SIZE": size}
    return CompilerCache(str(folder), folder, variables)


@contextlib.contextmanager
def own_server(launcher: Sequence[str], variables: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """A server of sccache for the block; gives the variables by which compilers find it.

    A server that runs already has another cache, and goes on with the compilers of a build that was
    stopped. This one ends with the block, or with the programs of this run.

    Raises:
        TorchwheelError: the cache cannot be reached.
    """
    if not launcher:
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix="torchwheel-") as folder:
        mine = {**variables, "SCCACHE_SERVER_UDS": str(Path(folder, _SOCKET))}
        env = {**os.environ, **mine}
        started = process.run([*launcher, "--start-server"], env=env)
        if started.status:
            reason = started.reason(re.compile("error|caused by", re.IGNORECASE))
            raise TorchwheelError(f"{launcher[0]}: its server does not start: {reason}")
        try:
            yield mine
        finally:
            # It writes its last objects before it ends. A run that was stopped starts no program.
            with contextlib.suppress(process.NotRunError):
                process.run([*launcher, "--stop-server"], env=env)
