"""The container engine: docker if its server answers, else podman."""

import contextlib
import dataclasses
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from torchwheel.data import FOLDER
from torchwheel_runtime import process
from torchwheel_runtime.console import show_output
from torchwheel_runtime.errors import TorchwheelError, UsageError, program_error

EngineName = Literal["docker", "podman"]

VARIABLE = "TORCHWHEEL_ENGINE"
Volume = tuple[str, str, str]
"""A folder or file of the host, its path in the container, and "ro" or "rw"."""

_RUNTIME = "runc"
"""What restricted.conf has podman start containers with."""
_SBIN = "/usr/sbin:/usr/local/sbin"
"""Where podman looks for it too."""
LABEL = "torchwheel.run"
"""Label of every container a run starts; its value names the run's output folder."""

# The user of a container that root starts: its build need not be root.
_BUILDER = 1000
_CAP_SYS_RESOURCE = 24
_SERVER_SECONDS = 10
_TRIES = 5
# Of a container, seen from inside it.
_CPU_STAT = "/sys/fs/cgroup/cpu.stat"
_USED = re.compile(r"^usage_usec (\d+)", re.MULTILINE)
# A line of the engine, or of apt in an image's build.
_ERROR = re.compile(r"\berror\b|^E: ", re.IGNORECASE)
# docker's first builder knows no --secret, and is the usual one before docker 23.
_DOCKER = {"DOCKER_BUILDKIT": "1"}
# What a recipe says itself, after the step's number and seconds that docker puts before it. The
# engine's own last line is then the command of the step, which has a screen of text.
_EXPECTED = re.compile(r"(?:#\d+ +[\d.]+ +)?(?P<text>[\w-]+: expected .+, found .+)")


@dataclasses.dataclass(frozen=True)
class Engine:
    """A container engine that works here.

    Attributes:
        name: its program.
        environ: the variables it needs.
        rootless: whether it runs without root, so that root in a container is this user outside.
    """

    name: EngineName
    environ: Mapping[str, str]
    rootless: bool = False

    @property
    def user(self) -> tuple[int, int]:
        """User and group of a container, by number: they own what it writes to this machine.

        It is this user, whose number may be in no file of the image.
        """
        if self.rootless:
            return 0, 0
        return (os.geteuid(), os.getegid()) if os.geteuid() else (_BUILDER, _BUILDER)

    def user_options(self) -> list[str]:
        """The engine's options that start a container as `user`."""
        # A user without an entry in the image has the home / and no name.
        return ["--user={}:{}".format(*self.user), "--env=HOME=/tmp", "--env=USER=builder"]

    def give(self, folder: Path) -> None:
        """Make the user of a container the owner of a folder, file or link of this machine."""
        if os.geteuid() == 0:
            os.chown(folder, *self.user, follow_symlinks=False)

    def call(self, arguments: Sequence[str], doing: str, log: Path | None = None) -> str:
        """Run a command of the engine and return its output; a failure is one line.

        Args:
            arguments: the words after the engine's name.
            doing: what is being done, for the message.
            log: a file for the output, which is not returned then.
        """
        try:
            done = self._run(arguments, log)
        except process.NotRunError as error:
            raise TorchwheelError(f"{doing}: {error}") from error
        show_output(done.output if log else "")
        if done.status:
            pointer = f" (all of it in {log})" if log else ""
            lines = process.printed_lines(done.output)
            said = [found["text"] for line in lines if (found := _EXPECTED.match(line))]
            reason = said[-1] if said else f"{self.name}: {done.reason(_ERROR)}"
            raise program_error(f"{doing}: {reason}{pointer}")
        return "" if log else done.output

    def succeeds(self, arguments: Sequence[str], log: Path = Path(os.devnull)) -> bool:
        """Whether a command of the engine succeeds; its output goes to `log`."""
        return self._run(arguments, log).status == 0

    def content_of(self, reference: str) -> str | None:
        """Hash of the layers of an image; None if the engine does not have it.

        The image's id will not do: it changes with the moment of the build.
        """
        command = ["image", "inspect", "--format", "{{json .RootFS.Layers}}", reference]
        done = self._run(command, merge=False)
        if done.status:
            return None
        return hashlib.sha256(done.output.strip().encode()).hexdigest()

    def cpu_seconds(self, run: str) -> float | None:
        """CPU seconds of a run's containers so far; None if that cannot be known.

        What runs in them may be below no process of this machine that can be seen.
        """
        listed = self._answer(["ps", "--quiet", *_of_run(run)])
        seconds = None
        for name in listed.split():
            if (used := _USED.search(self._answer(["exec", name, "cat", _CPU_STAT]))) is None:
                return None
            seconds = (seconds or 0.0) + int(used[1]) / 1e6
        return seconds

    def check_works(self) -> None:
        """Raise if the engine cannot run or build: in a second, where an image takes minutes."""
        self.call(["info"], "the container engine")
        if self.name == "docker" and not self.succeeds(["buildx", "version"]):
            raise TorchwheelError(
                "docker: expected its plugin buildx, which builds images, found none: "
                "`apt-get install docker-buildx`"
            )

    def free_space(self) -> tuple[Path, int] | None:
        """The folder of the images, and its free bytes; None where it is not on this machine."""
        field = "{{.DockerRootDir}}" if self.name == "docker" else "{{.Store.GraphRoot}}"
        folder = Path(self._answer(["info", "--format", field]).strip() or "/nowhere")
        return (folder, shutil.disk_usage(folder).free) if folder.is_dir() else None

    def _answer(self, arguments: Sequence[str]) -> str:
        """The output of a command that is quick; empty if it is not, or does not start."""
        try:
            return self._run(arguments, merge=False, timeout=_SERVER_SECONDS).output
        except process.NotRunError:
            return ""

    def remove_containers(self, run: str) -> None:
        """Remove containers that a killed run left; `run` is the value of their LABEL."""
        output = self.call(["ps", "--all", "--quiet", *_of_run(run)], "listing containers")
        if names := output.split():
            # rm alone would wait ten seconds for a shell that ignores the request to end.
            self.succeeds(["kill", *names])
            self.call(["rm", "--force", "--volumes", *names], "removing containers")

    def _run(
        self,
        arguments: Sequence[str],
        log: Path | None = None,
        *,
        merge: bool = True,
        timeout: float | None = None,
    ) -> process.ProcessResult:
        env = {**os.environ, **self.environ}
        command = [self.name, *arguments]
        return process.run(command, env=env, merge=merge, log=log, timeout=timeout)


def _of_run(run: str) -> list[str]:
    """The engine's options that list the containers of a run alone."""
    return ["--filter", f"label={LABEL}={run}"]


def volume_options(volumes: Iterable[Volume]) -> list[str]:
    """The engine's options that mount `volumes`."""
    return [f"--volume={host}:{inside}:{mode}" for host, inside, mode in volumes]


def find_engine(environ: Mapping[str, str] = os.environ) -> Engine:
    """TORCHWHEEL_ENGINE, else docker if its server answers, else podman."""
    named = environ.get(VARIABLE)
    if named and named not in ("docker", "podman"):
        raise UsageError(f"{VARIABLE}={named}: docker or podman expected")
    path = environ.get("PATH")
    there = named != "podman" and shutil.which("docker", path=path)
    refused = "" if named or not there else _docker_refuses()
    if there and not refused:
        return Engine("docker", _DOCKER, rootless=_docker_is_rootless())
    if named != "docker" and shutil.which("podman", path=path):
        variables = _podman_environ(environ)
        if variables and not shutil.which(_RUNTIME, path=f"{path}{os.pathsep}{_SBIN}"):
            raise TorchwheelError(
                "podman: this machine may not raise limits (no CAP_SYS_RESOURCE), so crun fails; "
                f"expected {_RUNTIME}, found none: `apt-get install {_RUNTIME}`, or name settings "
                "of your own in CONTAINERS_CONF"
            )
        return Engine("podman", variables, rootless=os.geteuid() != 0)
    raise TorchwheelError(
        f"no container engine: {named or 'neither docker (with its server running) nor podman'} "
        f"is here: `apt-get install podman {_RUNTIME}`{refused}"
    )


def _docker_refuses() -> str:
    """Why docker's server does not serve this user; empty if it does."""
    command = ["docker", "version", "--format", "{{.Server.Version}}"]
    try:
        done = process.run(command, timeout=_SERVER_SECONDS)
    except process.NotRunError as error:
        return f"; docker: {error.reason}"
    if done.status == 0 and done.output.strip():
        return ""
    return f"; docker: {done.last_words('its server said nothing')}"


def _docker_is_rootless() -> bool:
    done = process.run(["docker", "info", "--format", "{{json .SecurityOptions}}"])
    return done.status == 0 and "name=rootless" in done.output


def _podman_environ(environ: Mapping[str, str]) -> Mapping[str, str]:
    """Settings for a restricted host, unless the user has their own."""
    if environ.get("CONTAINERS_CONF") or not _is_restricted(Path("/proc/self/status")):
        return {}
    return {"CONTAINERS_CONF": str(FOLDER / "restricted.conf")}


def _is_restricted(status: Path) -> bool:
    """Whether root may not raise limits here, or could not if this user became it."""
    held = "CapBnd" if os.geteuid() else "CapEff"
    match = re.search(rf"^{held}:\s*([0-9a-f]+)$", status.read_text(), re.MULTILINE)
    return match is None or not int(match[1], 16) >> _CAP_SYS_RESOURCE & 1


@contextlib.contextmanager
def reap_containers(engine: Engine, run: str) -> Iterator[None]:
    """Remove the containers of `run` before the block and after it, however it ends.

    A child does it, which outlives a killed run for a moment. It waits for the end of its standard
    input, which this process holds open until it ends, even by kill -9.
    """
    engine.remove_containers(run)
    with subprocess.Popen(
        [*process.python_module(sys.executable, __name__), engine.name, run],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # In its own session it survives when the parent's process group is killed.
        start_new_session=True,
        env={**os.environ, **engine.environ},
    ) as child:
        try:
            yield
        finally:
            if child.stdin:
                child.stdin.close()
            child.wait()


def main(arguments: list[str]) -> None:
    """What the child does: wait for the end of its parent, then remove its containers."""
    name, run = arguments
    engine = Engine("docker" if name == "docker" else "podman", {})
    sys.stdin.buffer.read()
    # The engine refuses a container that just starts or ends: ask again.
    for _ in range(_TRIES):
        with contextlib.suppress(TorchwheelError):
            engine.remove_containers(run)
            return


if __name__ == "__main__":
    main(sys.argv[1:])
