"""The Pythons of this machine: each is asked once, by one script, in a process of its own."""

import dataclasses
import functools
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import packaging

from torchwheel_runtime import process
from torchwheel_runtime.errors import MalformedError, UsageError
from torchwheel_runtime.json_files import last_line, parse_json
from torchwheel_runtime.text import escape, quote
from torchwheel_runtime.versions import minor_version

OLDEST = (3, 10)
_IS_OLD = 3
"""The exit status of a Python before that one, which then says which it is."""
# Runs in the other Python, whichever it is. Its own packages come before ours.
_ASK = """
if sys.version_info < %s:
    print(".".join(map(str, sys.version_info[:3])))
    sys.exit(%d)
import importlib.metadata, importlib.util, json, platform, sys, sysconfig
try:
    spec = importlib.util.find_spec("torch")
except (ImportError, ValueError, AttributeError):
    spec = None
installed = {}
for found in importlib.metadata.distributions():
    name, version = found.metadata["Name"], found.version
    if name and version:
        installed.setdefault(str(name), str(version))
sys.path.append(sys.argv[1])
from packaging import markers, tags
print(json.dumps({
    "path": sys.executable,
    "version": platform.python_version(),
    "build": sys.version,
    "implementation": platform.python_implementation(),
    "platform": sysconfig.get_platform().replace("-", "_").replace(".", "_"),
    "torch": spec.origin if spec else None,
    "tags": [str(tag) for tag in tags.sys_tags()],
    "markers": {k: str(v) for k, v in markers.default_environment().items()},
    "installed": installed,
}))
"""
_SECONDS = 60


@dataclasses.dataclass(frozen=True)
class Interpreter:
    """A Python of this machine, and what is installed for it.

    Attributes:
        path: its program.
        version: its release, e.g. "3.12.1".
        build: `sys.version`, which tells two builds of a release apart.
        implementation: e.g. "CPython".
        platform: the platform as wheels name it, e.g. "linux_x86_64".
        torch: the file of the package torch; None if it is not installed.
        tags: the tags of wheels that it takes, the best first.
        markers: the variables of environment markers.
        installed: versions of the installed distributions, by name.
    """

    path: Path
    version: str
    build: str
    implementation: str
    platform: str
    torch: Path | None
    tags: tuple[str, ...]
    markers: Mapping[str, str]
    installed: Mapping[str, str]

    @property
    def minor(self) -> str:
        """The minor release, e.g. "3.12"."""
        return minor_version(self.version)


def ask_interpreter(program: Path) -> Interpreter:
    """What a Python tells about itself.

    Raises:
        UsageError: the program is no Python, or an old one.
    """
    doing = f"{program}: expected Python {'.'.join(map(str, OLDEST))} or later"
    ours = Path(packaging.__file__).parents[1]
    script = process.SAFE_PATH + _ASK.replace("%s", str(OLDEST)).replace("%d", str(_IS_OLD))
    command = [str(program.absolute()), "-c", script, str(ours)]
    try:
        done = process.run(command, cwd="/", timeout=_SECONDS)
    except process.NotRunError as error:
        raise UsageError(f"{doing}, found one that {error.reason}; name another") from None
    if done.status == _IS_OLD and (version := last_line(done.output)):
        raise UsageError(f"{doing}; this is {escape(version)}")
    if done.status:
        raise UsageError(f"{doing}, found {quote(done.reason())}; name another")
    try:
        return parse_json(last_line(done.output), Interpreter, str(program), others=True)
    except MalformedError as error:
        raise UsageError(f"{doing}, found another program: {error.reason}") from None


@functools.cache
def running_interpreter() -> Interpreter:
    """The Python that runs this program."""
    return ask_interpreter(Path(sys.executable))


def find_interpreter(name: str) -> Interpreter:
    """The Python of a release ("3.12", looked up on the PATH) or of a path.

    Raises:
        UsageError: there is none, or it does not run.
    """
    program = f"python{name}" if name[:1].isdigit() else name
    found = shutil.which(program)
    if found is None:
        raise UsageError(
            f"--python {name}: expected a Python on the PATH or a path to one, found no {program}; "
            "install it, or name its path"
        )
    try:
        return ask_interpreter(Path(found))
    except UsageError as error:
        raise UsageError(f"--python {name}: {error}" if found != name else str(error)) from None
