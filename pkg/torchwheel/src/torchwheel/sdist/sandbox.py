"""A sandbox for code of others: no network, no home, few variables, its own folders alone.

`bwrap` (the package bubblewrap) makes it. A program in it sees the system's programs and libraries,
and what its build needs of torchwheel's cache. It can write to a copy of the project and to the
folders of its build. It has the user's number, but for root: root's builds run as another user.
"""

import contextlib
import dataclasses
import errno
import os
import platform
import pwd
import re
import shlex
import struct
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import pyproject_hooks

from torchwheel_runtime import process
from torchwheel_runtime.errors import TorchwheelError, UsageError
from torchwheel_runtime.files import make_executable, write_text
from torchwheel_runtime.ownership import UntrustedError, find_program
from torchwheel_runtime.text import quote

SandboxMode = Literal["auto", "require", "off"]
MODES: tuple[SandboxMode, ...] = get_args(SandboxMode)

_SYSTEM = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "opt", "nix", "gnu")
"""Folders of the root that hold programs and libraries."""
_SETTINGS = ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "passwd", "group")
"""What programs need of /etc."""
_VARIABLES = re.compile(
    r"PATH|LANG|LANGUAGE|LC_\w+|TZ|TERM|NO_COLOR|SOURCE_DATE_EPOCH|OMP_NUM_THREADS|MAX_JOBS"
    r"|CC|CXX|CPP|LD|AR|\w*FLAGS|NVCC\w*|CUDA\w*|TORCH_\w+|FORCE_CUDA|CMAKE_\w+",
    re.ASCII,
)
"""The variables of this process that a build gets."""
_OWN_VARIABLES = (
    *("DIST_EXTRA_CONFIG", "OMP_WAIT_POLICY", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED"),
    *("PYTHONNOUSERSITE", "_PYPROJECT_HOOKS_BUILD_BACKEND", "_PYPROJECT_HOOKS_BACKEND_PATH"),
)
"""Variables that a build frontend or a smoke test sets."""
_SECONDS = 30
# A client that starts a server waits for it on a socket in a folder, which is refused. And the
# sandbox would kill the server before it has written the last objects.
_WITH_SERVER = """\
SCCACHE_START_SERVER=1 SCCACHE_NO_DAEMON=1 "$0" >/dev/null 2>&1 &
for _ in 1 2 3 4 5 6 7 8 9 10; do "$0" --zero-stats >/dev/null 2>&1 && break; sleep 0.3; done
"$@"; status=$?
"$0" --stop-server >/dev/null 2>&1 && wait
exit $status"""


# bwrap enters the current folder, too, but without root's right to enter one of another user.
_ENTER = 'cd "$0" 2>/dev/null || cd /; exec "$@"'
_BUILD_USER = 61000
"""Whom root's builds run as. Systems give this number to no user and to no service."""
_OF_SCCACHE = re.compile("[0-9a-f]|preprocessor")
"""Folders of a compiler cache."""
_READ_ONLY = ("acpi", "bus", "fs", "irq", "scsi", "sys", "sysrq-trigger")
"""Of /proc, what root could write to, and so change the system outside."""
_MASKED = ("key-users", "keys")
"""Of /proc, what lists the keys of the user."""


@dataclasses.dataclass(frozen=True)
class Sandbox:
    """A bwrap that works here.

    Attributes:
        bwrap: the program.
        scratch: a folder for the sandbox's home and its temporary files.
        variables: names of the variables that a program gets, if they are set.
        setpriv: the program that gives up the rights of root; None for an ordinary user.
    """

    bwrap: str
    scratch: Path
    variables: frozenset[str]
    setpriv: str | None

    @property
    def temporary(self) -> Path:
        """The folder for temporary files, in the sandbox and out of it."""
        return self.scratch / "temporary"

    def write_program(
        self,
        path: Path,
        program: Path,
        *,
        read: Sequence[Path] = (),
        write: Sequence[Path] = (),
        given: Sequence[Path] = (),
        launcher: Sequence[str] = (),
        more: Mapping[str, str] | None = None,
        own: Mapping[str, str] | None = None,
    ) -> Path:
        """Write a program that runs `program` in the sandbox with its own arguments appended.

        bwrap stays the first process in there. So it is started without the variables and the
        system calls that the program must not have.

        Args:
            path: the file.
            program: the program.
            read: files and folders that it can read, beside the system's.
            write: folders that it can also write to. If root builds, they become the build user's.
            given: files and folders of the build that it can read. They become its user's, too.
            launcher: the compiler launcher of its build.
            more: variables that it gets beside the usual ones.
            own: variables that the project names itself. The sandbox is made without them, as one
                such as LD_PRELOAD would run the project's code before it is there.
        """
        home, calls = self.scratch / "home", self.scratch / "system-calls"
        for folder in (home, self.temporary):
            folder.mkdir(parents=True, exist_ok=True)
        calls.write_bytes(_filter_of_calls(_MACHINES[platform.machine()]))
        write = [*write, home, self.temporary]
        fixed = {**(more or {}), "HOME": str(home), "TMPDIR": str(self.temporary)}
        give = ""
        if self.setpriv:
            # Its owner has no name here, which some programs ask for.
            fixed |= {"USER": "build", "LOGNAME": "build"}
            owner = f"{_BUILD_USER}:{_BUILD_USER}"
            chosen = dict.fromkeys(map(str, (*given, *write)))
            give = f"chown -hR {shlex.join([owner, '--', *chosen])} &&\n"
        # Each is passed on if it is set: NAME=VALUE, quoted by the shell itself.
        passed = [f'${{{name}+"{name}=${name}"}}' for name in sorted(self.variables - {*fixed})]
        command = [
            *(f"{name}={value}" for name, value in sorted(fixed.items())),
            *(self.bwrap, "--seccomp", "9"),
            *self._isolation_options(),
            *_system_options(),
            *self._mount_options([*read, *given], write),
            *("--remount-ro", "/", "--"),
        ]
        inside = ["/bin/sh", "-c", _WITH_SERVER, *launcher] if launcher else []
        if own:
            inside += ["/usr/bin/env", *(f"{name}={value}" for name, value in own.items())]
        inside.append(str(program))
        first = f"/usr/bin/env -i {' '.join(passed)} {shlex.join(command)}"
        words = f'{first} {self._as_build_user()} {shlex.join(inside)} "$@"'
        write_text(path, f"#!/bin/sh\n{give}exec {words} 9<{shlex.quote(str(calls))}\n")
        make_executable(path)
        return path

    def _mount_options(self, read: Sequence[Path], write: Sequence[Path]) -> list[str]:
        path = [Path(name) for name in os.environ.get("PATH", os.defpath).split(os.pathsep)]
        homes = _homes()
        shown = (p for p in path if not is_of_system(p) and not _has_home(p, homes))
        there = filter(os.path.exists, [*read, *shown])  # a folder may be closed to this user
        # What can be written may be made after this, before the program starts.
        return [*_mounts("--ro-bind", there), *_mounts("--bind", write)]

    def _isolation_options(self) -> list[str]:
        """Options that give a program no network, no other processes and no rights."""
        options = ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts"]
        options += ["--unshare-cgroup-try", "--cap-drop", "ALL", "--hostname", "sandbox"]
        options += ["--die-with-parent", "--new-session"]
        if not self.setpriv:
            # A namespace of users of its own lets a user make the others.
            return ["--unshare-user", *options]
        # In one, root would stay the owner of the system's files. So root makes the others, and
        # then becomes another user, which takes these rights.
        for right in ("CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP"):
            options += ["--cap-add", right]
        return options

    def _as_build_user(self) -> str:
        """The words before a program that root starts; none for an ordinary user."""
        if not self.setpriv:
            return ""
        user = [f"--reuid={_BUILD_USER}", f"--regid={_BUILD_USER}", "--clear-groups"]
        command = [self.setpriv, *user, "--inh-caps=-all", "--bounding-set=-all", "--"]
        return shlex.join([*command, "/bin/sh", "-c", _ENTER]) + ' "$PWD"'

    def check_cache(self, folder: Path) -> None:
        """Refuse a compiler cache that root may not give to the user of its builds.

        Raises:
            UsageError: there are other files in it.
        """
        folder.mkdir(parents=True, exist_ok=True)
        if not self.setpriv:
            return
        if other := next((p for p in folder.iterdir() if not _OF_SCCACHE.fullmatch(p.name)), None):
            raise UsageError(
                f"--cache {folder}: expected a folder of sccache's own, which root gives to the "
                f"user of its builds, {_BUILD_USER}, found {quote(other.name)} in it; name another"
            )


class _Calls(NamedTuple):
    """Numbers of a machine's system calls, as Linux's audit.h and unistd.h have them."""

    machine: int
    socket: int
    socketpair: int
    refused: tuple[int, ...]


# add_key, request_key and keyctl reach the caller's keys. io_uring makes sockets by itself.
_MACHINES = {
    "x86_64": _Calls(0xC000003E, 41, 53, (248, 249, 250, 425)),
    "aarch64": _Calls(0xC00000B7, 198, 199, (217, 218, 219, 425)),
}
_LOAD, _EQUAL, _ABOVE, _AND, _RETURN = 0x20, 0x15, 0x35, 0x54, 0x06
_NUMBER, _MACHINE, _FIRST, _SECOND = 0, 4, 16, 24
"""Places in Linux's struct seccomp_data; of an argument, its lower half."""
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | errno.EPERM
_OTHER_ABI = 0x40000000
"""Numbers of x86_64's 32-bit calls begin here."""
_FAMILIES, _KINDS = (2, 10, 16), (1, 5)
"""AF_INET, AF_INET6, AF_NETLINK; SOCK_STREAM, SOCK_SEQPACKET. Other systems lack some names."""


def _filter_of_calls(calls: _Calls) -> bytes:
    """A seccomp filter, as bwrap reads it.

    A network namespace holds the internet's sockets. One with a path leads to whoever listens in a
    folder that is shown, and a virtual machine's to its host. So no others can be made, nor pairs
    of datagram sockets, which can be connected anew.
    """

    def answer(values: Iterable[int], then: int) -> list[tuple[int, int, int, int]]:
        return [line for one in values for line in ((_EQUAL, 0, 1, one), (_RETURN, 0, 0, then))]

    families, kinds = answer(_FAMILIES, _ALLOW), answer(_KINDS, _ALLOW)
    lines = [
        (_LOAD, 0, 0, _MACHINE),
        (_EQUAL, 1, 0, calls.machine),
        (_RETURN, 0, 0, _REFUSE),
        (_LOAD, 0, 0, _NUMBER),
        *((_ABOVE, 0, 1, _OTHER_ABI), (_RETURN, 0, 0, _REFUSE)),
        *answer(calls.refused, _REFUSE),
        (_EQUAL, 0, len(families) + 2, calls.socket),
        *((_LOAD, 0, 0, _FIRST), *families, (_RETURN, 0, 0, _REFUSE)),
        (_EQUAL, 0, len(kinds) + 3, calls.socketpair),
        *((_LOAD, 0, 0, _SECOND), (_AND, 0, 0, 0xF), *kinds, (_RETURN, 0, 0, _REFUSE)),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("<HBBI", *line) for line in lines)


def _system_options() -> list[str]:
    options = ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]  # noqa: S108 - in the sandbox
    options += _mounts(
        "--ro-bind", filter(Path.exists, (Path("/proc", name) for name in _READ_ONLY))
    )
    for name in _MASKED:
        if Path("/proc", name).exists():
            options += ["--ro-bind", os.devnull, f"/proc/{name}"]
    for name in _SYSTEM:
        path = Path("/", name)
        if path.is_symlink():
            options += ["--symlink", str(path.readlink()), str(path)]
        elif path.is_dir():
            options += ["--ro-bind", str(path), str(path)]
    settings = (Path("/etc", name) for name in _SETTINGS)
    return options + _mounts("--ro-bind", filter(Path.exists, settings))


def _mounts(option: str, paths: Iterable[Path]) -> list[str]:
    """Options that show the paths, the outer folders first.

    bwrap gives a folder that leads to one the rights that it has outside, which root's may have
    alone. So it is made first.
    """
    seen = sorted(set(paths))
    return [
        word for path in seen for word in ("--dir", str(path.parent), option, str(path), str(path))
    ]


def is_of_system(path: Path) -> bool:
    """Whether a path is in a folder of the system's programs, which every sandbox shows."""
    return not path.is_absolute() or path.parts[1:2] == () or path.parts[1] in _SYSTEM


def _homes() -> frozenset[Path]:
    """The home folder by HOME and by the user database, which may differ."""
    names = [os.environ.get("HOME", "")]
    with contextlib.suppress(KeyError):
        names.append(pwd.getpwuid(os.geteuid()).pw_dir)
    return frozenset(Path(name).resolve() for name in names if name)


def _has_home(path: Path, homes: Iterable[Path]) -> bool:
    """Whether a folder on the PATH is a home or holds one, whose files nobody means to show."""
    real = path.resolve()
    return any(home.is_relative_to(real) for home in homes)


def find_sandbox(
    mode: SandboxMode,
    scratch: Path,
    variables: Iterable[str],
    say: Callable[[str], None],
    environ: Mapping[str, str] = os.environ,
) -> Sandbox | str:
    """The sandbox of this machine, or the reason why there is none.

    Args:
        mode: "require" makes the reason an error; "off" looks for none.
        scratch: a folder for the sandbox's home and its temporary files.
        variables: names of variables beside the usual ones that a program gets.
        say: reports a bwrap that others can exchange, if another one is used.
        environ: the variables of this process.
    """
    if mode == "off":
        return "--sandbox off"
    skipped: list[UntrustedError] = []
    programs = {"bwrap": "bubblewrap", **({"setpriv": "util-linux"} if os.geteuid() == 0 else {})}
    found = {name: find_program(name, environ.get("PATH"), skipped.append) for name in programs}
    missing = next((name for name in programs if not found[name]), None)
    if missing:
        reason = f"{missing} is not on the PATH; install {programs[missing]}"
        reason = str(skipped[0]) if skipped else reason
    elif platform.machine() not in _MACHINES:
        reason = f"it is made on {' and '.join(_MACHINES)} alone"
    else:
        for error in skipped:
            say(str(error))
        usual = {name for name in environ if _VARIABLES.fullmatch(name)}
        names = frozenset({*usual, *_OWN_VARIABLES, *variables})
        sandbox = Sandbox(str(found["bwrap"]), scratch, names, found.get("setpriv"))
        if not (reason := _try(sandbox)):
            return sandbox
        reason = f"bwrap does not work here: {reason}"
    if mode == "require":
        raise TorchwheelError(f"--sandbox require: expected a sandbox, found none: {reason}")
    return reason


def _try(sandbox: Sandbox) -> str:
    """Why bwrap makes no sandbox here; empty if it does."""
    trial = sandbox.write_program(sandbox.scratch / "trial", Path("/bin/sh"))
    try:
        done = process.run([trial, "-c", ":"], timeout=_SECONDS)
    except process.NotRunError as error:
        return error.reason
    return done.reason() if done.status else ""


@contextlib.contextmanager
def temporary_files_in(folder: Path | None) -> Iterator[None]:
    """Let this process make its temporary files in `folder`, where the sandbox sees them."""
    before = tempfile.tempdir
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.tempdir = str(folder)
    try:
        yield
    finally:
        tempfile.tempdir = before


def python_folders() -> list[Path]:
    """What a Python of ours and a build frontend's hook need."""
    hooks = Path(pyproject_hooks.__file__ or "").parent
    return [Path(sys.base_prefix), Path(sys.base_exec_prefix), hooks]
