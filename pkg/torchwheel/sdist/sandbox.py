"""A sandbox for code of others: no network, no home, few variables, its own folders alone.

`bwrap` (the package bubblewrap) makes it. A program in it sees the system's programs and libraries,
torchwheel's cache and the project. It can write to the project and to the folders of its build.
"""

import contextlib
import dataclasses
import os
import pwd
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, get_args

import pyproject_hooks

from torchwheel import process
from torchwheel.errors import TorchwheelError, UsageError
from torchwheel.ownership import UntrustedError, find_program

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
_OWN_VARIABLES = ("DIST_EXTRA_CONFIG", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED")
"""Variables that a build frontend or a smoke test sets."""
_SECONDS = 30
# sccache's server would be killed with the sandbox, before it has written the last objects.
_STOP_SERVER = '"$@"; status=$?; "$0" --stop-server >/dev/null 2>&1; exit $status'


@dataclasses.dataclass(frozen=True)
class Folders:
    """What a program in the sandbox sees beside the system.

    Attributes:
        read: files and folders that it can read.
        write: folders that it can also write to.
        hidden: folders that it sees empty, but for those of `read` and `write` in them.
    """

    read: Sequence[Path]
    write: Sequence[Path]
    hidden: Sequence[Path] = ()


@dataclasses.dataclass(frozen=True)
class Sandbox:
    """A bwrap that works here.

    Attributes:
        bwrap: the program.
        scratch: a folder for the sandbox's home and its temporary files.
        variables: names of the variables that a program gets, if they are set.
    """

    bwrap: str
    scratch: Path
    variables: frozenset[str]

    @property
    def temporary(self) -> Path:
        """The folder for temporary files, in the sandbox and out of it."""
        return self.scratch / "temporary"

    def command(
        self, program: Path, folders: Folders, launcher: Sequence[str], more: Mapping[str, str]
    ) -> list[str]:
        """The command that runs `program` in the sandbox; its arguments follow.

        Args:
            program: the program.
            folders: what it sees.
            launcher: the compiler launcher of its build.
            more: variables that it gets beside the usual ones.
        """
        home = self.scratch / "home"
        for folder in (home, self.temporary):
            folder.mkdir(parents=True, exist_ok=True)
        path = [Path(name) for name in os.environ.get("PATH", os.defpath).split(os.pathsep)]
        homes = _homes()
        shown = (p for p in path if not _is_of_system(p) and not _has_home(p, homes))
        read = [*folders.read, *shown]
        hidden = sorted(name for name in os.environ if name not in self.variables)
        more = {**more, "HOME": str(home), "TMPDIR": str(self.temporary)}
        stop = ["/bin/sh", "-c", _STOP_SERVER, *launcher] if launcher else []
        return [
            *(self.bwrap, *_ISOLATED, *_system_options()),
            *_mounts("--ro-bind", filter(Path.exists, read)),
            *(option for folder in folders.hidden for option in ("--tmpfs", str(folder))),
            *_mounts("--ro-bind", (p for p in folders.read if _is_below(p, folders.hidden))),
            # They may be made after this, before the program starts.
            *_mounts("--bind", [*folders.write, home, self.temporary]),
            *("--remount-ro", "/"),
            *(word for name in hidden for word in ("--unsetenv", name)),
            *(word for name in sorted(more) for word in ("--setenv", name, more[name])),
            *("--", *stop, str(program)),
        ]


# A namespace of users of its own, so that root in it has no right outside.
_ISOLATED = (
    *("--unshare-all", "--unshare-user", "--cap-drop", "ALL", "--hostname", "sandbox"),
    *("--die-with-parent", "--new-session"),
)


def _system_options() -> list[str]:
    options = ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]  # noqa: S108 - in the sandbox
    for name in _SYSTEM:
        path = Path("/", name)
        if path.is_symlink():
            options += ["--symlink", str(path.readlink()), str(path)]
        elif path.is_dir():
            options += ["--ro-bind", str(path), str(path)]
    settings = (Path("/etc", name) for name in _SETTINGS)
    return options + _mounts("--ro-bind", filter(Path.exists, settings))


def _mounts(option: str, paths: Iterable[Path]) -> list[str]:
    """Options that show the paths, the outer folders first."""
    seen = sorted(set(map(str, paths)))
    return [word for path in seen for word in (option, path, path)]


def _is_of_system(path: Path) -> bool:
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


def _is_below(path: Path, folders: Iterable[Path]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)


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
    bwrap = find_program("bwrap", environ.get("PATH"), skipped.append)
    reason = str(skipped[0]) if skipped else "bwrap is not on the PATH; install bubblewrap"
    if bwrap:
        for error in skipped:
            say(str(error))
        if (reason := _probe(bwrap)) == "":
            usual = {name for name in environ if _VARIABLES.fullmatch(name)}
            return Sandbox(bwrap, scratch, frozenset({*usual, *_OWN_VARIABLES, *variables}))
        reason = f"bwrap does not work here: {reason}"
    if mode == "require":
        raise TorchwheelError(f"--sandbox require: expected a sandbox, found none: {reason}")
    return reason


def _probe(bwrap: str) -> str:
    """Why bwrap makes no sandbox here; empty if it does."""
    try:
        done = process.run(
            [bwrap, *_ISOLATED, *_system_options(), "--", "/bin/sh", "-c", ":"], timeout=_SECONDS
        )
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


def parse_variables(texts: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of `--env NAME` and `--env NAME=VALUE`."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) or not (equals or name in environ):
            raise UsageError(
                f"--env {text!r}: expected NAME=VALUE, or the NAME of a variable that is set"
            )
        found[name] = value if equals else environ[name]
    return found
