"""The container engine: docker where its server answers, else podman."""

import dataclasses
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from torchwheel.data import FOLDER
from torchwheel.errors import TorchwheelError, UsageError, program_error

EngineName = Literal["docker", "podman"]

VARIABLE = "TORCHWHEEL_ENGINE"
Volume = tuple[str, str, str]
"""A folder or file of the host, where it is in the container, and "ro" or "rw"."""

LABEL = "torchwheel.run"
"""Label of every container a run starts; its value names the run's output folder."""

_CAP_SYS_RESOURCE = 24
_SERVER_SECONDS = 10


@dataclasses.dataclass(frozen=True)
class Engine:
    """A container engine that works here, and the environment it has to be called with."""

    name: EngineName
    environ: Mapping[str, str]

    def call(self, arguments: Sequence[str], doing: str, log: Path | None = None) -> str:
        """Run a command of the engine and return what it prints; its failure is one line.

        Args:
            arguments: what follows the engine's name.
            doing: what is being done, for the message.
            log: where everything it says is kept, if anywhere; it then returns "".
        """
        try:
            if log is None:
                done = self._run(arguments, subprocess.PIPE)
                said = done.stdout
            else:
                with log.open("w", encoding="utf-8") as file:
                    done = self._run(arguments, file.fileno())
                said = log.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise TorchwheelError(f"{doing}: {self.name}: {error.strerror}") from error
        if done.returncode:
            kept = f" (all of it in {log})" if log else ""
            raise program_error(f"{doing}: {self.name}: {_reason(said)}{kept}")
        return "" if log else said

    def succeeds(self, arguments: Sequence[str], log: Path = Path(os.devnull)) -> bool:
        """Whether a command of the engine ends well; what it says is kept in `log`."""
        with log.open("w", encoding="utf-8") as file:
            return self._run(arguments, file.fileno()).returncode == 0

    def content_of(self, reference: str) -> str | None:
        """Names the files of an image that is here, by the hashes of its layers; else None.

        Not the image's id: that changes with the moment it was made.
        """
        done = self._run(
            ["image", "inspect", "--format", "{{json .RootFS.Layers}}", reference],
            subprocess.PIPE,
            errors=subprocess.DEVNULL,
        )
        if done.returncode:
            return None
        return hashlib.sha256(done.stdout.strip().encode()).hexdigest()

    def remove_containers(self, run: str) -> None:
        """Remove what a killed run left; `run` is the value of its LABEL."""
        listed = self.call(
            ["ps", "--all", "--quiet", "--filter", f"label={LABEL}={run}"], "listing containers"
        )
        if names := listed.split():
            # rm alone would wait ten seconds for a shell that ignores being asked.
            self.succeeds(["kill", *names])
            self.call(["rm", "--force", "--volumes", *names], "removing containers")

    def _run(
        self, arguments: Sequence[str], output: int, errors: int = subprocess.STDOUT
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.name, *arguments],
            env={**os.environ, **self.environ},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            text=True,
            errors="replace",
            check=False,
        )


def volume_options(volumes: Iterable[Volume]) -> list[str]:
    """The engine's options that mount `volumes`."""
    return [f"--volume={host}:{inside}:{mode}" for host, inside, mode in volumes]


def find_engine(environ: Mapping[str, str] = os.environ) -> Engine:
    """TORCHWHEEL_ENGINE, else docker if its server answers, else podman."""
    named = environ.get(VARIABLE)
    if named and named not in ("docker", "podman"):
        raise UsageError(f"{VARIABLE}={named}: docker or podman expected")
    path = environ.get("PATH")
    if named != "podman" and shutil.which("docker", path=path) and (named or _docker_answers()):
        return Engine("docker", {})
    if named != "docker" and shutil.which("podman", path=path):
        return Engine("podman", _podman_environ(environ))
    raise TorchwheelError(
        f"no container engine: {named or 'neither docker (with its server running) nor podman'} "
        "is here; install one, e.g. `apt-get install podman`, or build without containers"
    )


def _docker_answers() -> bool:
    try:
        done = subprocess.run(
            ["docker", "version", "--format", "{{.Server.Version}}"],
            capture_output=True,
            timeout=_SERVER_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0 and bool(done.stdout.strip())


def _podman_environ(environ: Mapping[str, str]) -> Mapping[str, str]:
    """Settings that a restricted host needs, unless the user has settings of their own."""
    if environ.get("CONTAINERS_CONF") or not _is_restricted(Path("/proc/self/status")):
        return {}
    return {"CONTAINERS_CONF": str(FOLDER / "restricted.conf")}


def _is_restricted(status: Path) -> bool:
    """Whether this is root without the right to raise limits."""
    found = re.search(r"^CapEff:\s*([0-9a-f]+)$", status.read_text(), re.MULTILINE)
    capable = found is not None and int(found[1], 16) >> _CAP_SYS_RESOURCE & 1
    return os.geteuid() == 0 and not capable


def _reason(said: str) -> str:
    """The line that says why: the last that names an error, else the last."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    named = [line for line in lines if re.search(r"\berror\b|^E: ", line, re.IGNORECASE)]
    return (named or lines or ["it said nothing"])[-1]
