"""cibuildwheel's options for one variant, as data and as the TOML file it reads.

Nothing of it is written by hand: `torchwheel wheels --show` prints what is generated.
"""

import dataclasses
import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from torchwheel.image.engine import LABEL, Volume, volume_options
from torchwheel.matrix.resolve import python_tag
from torchwheel.pipeline import inside
from torchwheel.smoke.junit import chosen, pytest_arguments

# Where things are in the container; the same in each, so that compile commands are the same too.
PROJECT = "/project"
KEPT = str(inside.KEPT)
SHARED = "/shared"
COMPANIONS = str(inside.COMPANIONS)
TORCH = "/opt/torch"
TORCHWHEEL = "/opt/torchwheel"
UV_CACHE = "/cache/uv"
CA_BUNDLE = "/etc/ssl/certs/ca-certificates.crt"
OWN: Volume = (str(Path(__file__).parent.parent), f"{TORCHWHEEL}/torchwheel", "ro")
"""This package, for the steps that run inside."""

_INSIDE = "python -m torchwheel.pipeline.inside"
# In the tests torchwheel is there for our own steps alone: the wheel is to find its own, or none.
_FOR_TESTS = {"PYTHONPATH": ""}
_INSIDE_TESTS = f"PYTHONPATH={TORCHWHEEL} {_INSIDE}"


@dataclasses.dataclass(frozen=True)
class Options:
    """One container build.

    Attributes:
        engine: "docker" or "podman".
        run: value of the label that a run's containers carry.
        image: the image's reference.
        python: e.g. "3.12".
        volumes: what is mounted.
        user: "uid:gid" the container runs as; None for the image's own.
        passed: environment variables handed through by name, so that no value is written down.
        environment: variables of the build and of the tests.
        project: name of the distribution.
        tests: folder of the smoke tests; None where the wheel is tried elsewhere.
        chosen: files of the folder that are run; none: all.
        requires: what is installed before the wheel: the torch it is tried with, pytest.
        companions: whether the wheels in COMPANIONS are installed before it as well.
    """

    engine: str
    run: str
    image: str
    python: str
    volumes: tuple[Volume, ...]
    user: str | None
    passed: tuple[str, ...]
    environment: Mapping[str, str]
    project: str
    tests: str | None
    requires: tuple[str, ...]
    chosen: tuple[str, ...] = ()
    companions: bool = False

    @property
    def identifier(self) -> str:
        """What cibuildwheel calls this build."""
        return f"{python_tag(self.python)}-manylinux_x86_64"


def settings(options: Options) -> dict[str, object]:
    """The table `tool.cibuildwheel`."""
    create = [f"--label={LABEL}={options.run}", *(f"--env={name}" for name in options.passed)]
    create += [f"--user={options.user}"] * (options.user is not None)
    create += volume_options(options.volumes)
    table: dict[str, object] = {
        "container-engine": {
            "name": options.engine,
            "create-args": create,
            # The host's files are none of the build's business.
            "disable-host-mount": True,
        },
        "manylinux-x86_64-image": options.image,
        "build-frontend": {"name": "build[uv]", "args": ["--no-isolation"]},
        "dependency-versions": "latest",
        "environment": dict(options.environment),
        "before-build": f"{_INSIDE} account start",
        "repair-wheel-command": f"{_INSIDE} finish {{wheel}} {{dest_dir}}",
    }
    if options.tests is not None:
        # torch first: the wheel's own range would bring the newest there is. Companions as files:
        # no index can give others of their names.
        install = shlex.join(["uv", "pip", "install", *options.requires])
        table |= {
            "test-environment": _FOR_TESTS,
            "before-test": install + f" {COMPANIONS}/*.whl" * options.companions,
            "test-sources": [options.tests],
            "test-command": " && ".join(
                _tests(options.project, chosen(options.tests, options.chosen))
            ),
        }
    return table


def _tests(project: str, tests: Sequence[str]) -> Sequence[str]:
    return (
        f"{_INSIDE_TESTS} {shlex.join(['probe', project])}",
        shlex.join(["python", *pytest_arguments(inside.KEPT / inside.JUNIT, *tests)]),
        f"{_INSIDE_TESTS} account test",
    )


def toml(options: Options) -> str:
    """The settings as a file for `cibuildwheel --config-file`."""
    lines = [f"{key} = {_value(value)}" for key, value in settings(options).items()]
    return "\n".join(["[tool.cibuildwheel]", *lines]) + "\n"


def _value(value: object) -> str:
    """A TOML value; a JSON text is a TOML basic string."""
    if isinstance(value, dict):
        inner = ", ".join(f"{_value(key)} = {_value(item)}" for key, item in value.items())
        return f"{{{inner}}}"
    if isinstance(value, list):
        # One a line: create-args are many.
        return "[" + "".join(f"\n  {_value(item)}," for item in value) + "\n]" if value else "[]"
    # JSON escapes all that TOML wants escaped but one character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
