"""The facts of an environment that decide which wheel fits: another Python's, or this one's."""

import dataclasses
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import packaging

from torchwheel_runtime import process
from torchwheel_runtime.arch.devices import visible_gpus
from torchwheel_runtime.errors import TorchwheelError, UsageError
from torchwheel_runtime.json_files import last_line, parse_json
from torchwheel_runtime.machine import probe
from torchwheel_runtime.machine.facts import Machine, split_absent
from torchwheel_runtime.machine.probe import driver_for_torch
from torchwheel_runtime.machine.torch import read_torch
from torchwheel_runtime.text import quote

# Runs in the other Python, 3.9 or later. Its own packages come before ours.
_ASK = """
import importlib.metadata, importlib.util, json, platform, sysconfig
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
    "python": platform.python_version(),
    "implementation": platform.python_implementation(),
    "platform": sysconfig.get_platform().replace("-", "_").replace(".", "_"),
    "torch": spec.origin if spec else None,
    "tags": [str(tag) for tag in tags.sys_tags()],
    "markers": {k: str(v) for k, v in markers.default_environment().items()},
    "installed": installed,
}))
"""
_SECONDS = 60


@dataclasses.dataclass(frozen=True, kw_only=True)
class TargetEnvironment(Machine):
    """An environment that a wheel is chosen for, on this machine.

    Attributes:
        program: its Python.
        implementation: e.g. "CPython".
        tags: the tags of wheels that it takes, the best first.
        markers: the variables of environment markers.
        installed: versions of the installed distributions, by name.
    """

    program: Path
    implementation: str
    tags: tuple[str, ...]
    markers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    installed: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class _Told:
    """What the other Python prints."""

    python: str
    implementation: str
    platform: str
    torch: str | None
    tags: tuple[str, ...]
    markers: dict[str, str]
    installed: dict[str, str]


def find_environment(
    python: Path | None = None, environ: Mapping[str, str] = os.environ
) -> TargetEnvironment:
    """The facts of the environment of a Python, by default the running one.

    Raises:
        UsageError: the program is no Python, or an old one.
    """
    program = python or Path(sys.executable)
    told = _ask(program)
    torch = split_absent(read_torch(Path(told.torch).parent))[0] if told.torch else None
    backend, answered = driver_for_torch(torch)
    driver, driver_problem = split_absent(answered)
    found = {
        "program": program,
        "glibc": probe.glibc_version(),
        "torch": torch,
        "driver": driver,
        "driver_problem": driver_problem,
        "gpus": visible_gpus(backend, environ).gpus,
    }
    return TargetEnvironment(**{**vars(told), **found})


def _ask(program: Path) -> _Told:
    ours = Path(packaging.__file__).parents[1]
    doing = f"{program}: expected a Python of 3.9 or later"
    code = process.SAFE_PATH + _ASK
    try:
        done = process.run([program.absolute(), "-c", code, ours], cwd="/", timeout=_SECONDS)
    except process.NotRunError as error:
        raise UsageError(f"{doing}, found one that {error.reason}; name another") from None
    if done.status:
        raise UsageError(f"{doing}, found {quote(done.reason())}; name another")
    try:
        return parse_json(last_line(done.output), _Told, str(program), others=True)
    except TorchwheelError as error:
        raise UsageError(f"{doing}: {error}") from None
