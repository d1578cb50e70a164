"""The Python that a smoke environment is made for: the running one or another of this machine."""

import dataclasses
import platform
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from torchwheel import process
from torchwheel.errors import TorchwheelError, UsageError
from torchwheel.json_files import last_line, parse_json
from torchwheel.versions import minor_version

_ASK = """
import json, platform, sys
print(json.dumps({"path": sys.executable, "version": platform.python_version(),
                  "build": sys.version}))
"""
_SECONDS = 60


@dataclasses.dataclass(frozen=True)
class Interpreter:
    """A CPython of this machine.

    Attributes:
        path: its program.
        version: its release, e.g. "3.12.1".
        build: `sys.version`, which tells two builds of a release apart.
    """

    path: Path
    version: str
    build: str

    @property
    def minor(self) -> str:
        """The minor release, e.g. "3.12"."""
        return minor_version(self.version)

    @property
    def markers(self) -> Mapping[str, str]:
        """The variables of environment markers that depend on the Python."""
        return {"python_version": self.minor, "python_full_version": self.version}


def running_interpreter() -> Interpreter:
    """The Python that runs this program."""
    return Interpreter(Path(sys.executable), platform.python_version(), sys.version)


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
        done = process.run([found, "-c", process.SAFE_PATH + _ASK], timeout=_SECONDS)
        done.require(found)
        return parse_json(last_line(done.output), Interpreter, found)
    except TorchwheelError as error:
        raise UsageError(f"--python {name}: {found} does not run as a Python") from error
