"""The options of one container build, as data and as the TOML file that cibuildwheel reads."""

import dataclasses
import json
import shlex
from collections.abc import Mapping, Sequence

import torchwheel
import torchwheel_runtime
from torchwheel.image.engine import LABEL, Volume, volume_options
from torchwheel.matrix.variants import python_tag
from torchwheel.pipeline import inside
from torchwheel.smoke.requirements import LOCK_OPTIONS as LOCKED
from torchwheel.smoke.testing import arguments_of_tests

# Paths in the container. All containers have the same, so that their compile commands are equal.
PROJECT = "/project"
OUTPUT = "/output"
VARIANT = str(inside.VARIANT)
SHARED = "/shared"
KERNELS = "/kernels"
BUNDLED = str(inside.BUNDLED)
LOCKS = "/locks"
TORCH = "/opt/torch"
TORCHWHEEL = "/opt/torchwheel"
UV_CACHE = "/cache/uv"
CA_BUNDLE = "/etc/ssl/certs/ca-certificates.crt"
COPIED_BUNDLE = "/cibuildwheel-ca-bundle.pem"
OWN: tuple[Volume, ...] = tuple(
    (half.__path__[0], f"{TORCHWHEEL}/{half.__name__}", "ro")
    for half in (torchwheel, torchwheel_runtime)
)
"""This package and the run-time half, for the steps that run in the container."""

FRONTEND = ("--no-isolation", "--skip-dependency-check")
"""What `build` is told: requirements are in folders on PYTHONPATH, torchwheel among them, where it
does not look."""

_INSIDE = "python -m torchwheel.pipeline.inside"
# The tests must not see the torchwheel of our own steps, but the installed one or none.
_TEST_ENVIRONMENT = {"PYTHONPATH": ""}
_ANY_INDEX = ("--index-strategy", "unsafe-best-match")
_INSIDE_TESTS = f"PYTHONPATH={TORCHWHEEL} {_INSIDE}"


@dataclasses.dataclass(frozen=True)
class ContainerOptions:
    """The options of one container build.

    Attributes:
        engine: "docker" or "podman".
        run: label of the containers of a run.
        image: the image's reference.
        python: e.g. "3.12".
        volumes: the mounts.
        user: the engine's options for the container's user.
        forwarded: names of variables that are handed through; their values are written nowhere.
        environment: variables of the build and of the tests.
        project: name of the distribution.
        tests: folder of the smoke tests; empty for imports alone, None if the wheel is tried
            elsewhere.
        chosen_tests: the files of that folder that run; all if empty.
        requires: installed before the wheel: torch, pytest.
        lock: file of the container whose packages are installed by hash in place of `requires`;
            empty to take what an index gives.
        bundled: whether the wheels in BUNDLED are installed before it.
        imports: what is imported, in place of the packages of the wheel.
        own: whether the project's own build makes the wheel, and not torchwheel's builder.
        settings: of the project's build backend.
        newest_glibc: the newest C library that the wheel may need, "2.28"; empty for any.
    """

    engine: str
    run: str
    image: str
    python: str
    volumes: tuple[Volume, ...]
    user: tuple[str, ...]
    forwarded: tuple[str, ...]
    environment: Mapping[str, str]
    project: str
    tests: str | None
    requires: tuple[str, ...]
    chosen_tests: tuple[str, ...] = ()
    lock: str = ""
    bundled: bool = False
    imports: tuple[str, ...] = ()
    own: bool = False
    settings: Mapping[str, str] = dataclasses.field(default_factory=dict)
    newest_glibc: str = ""

    @property
    def identifier(self) -> str:
        """The build's identifier in cibuildwheel."""
        return f"{python_tag(self.python)}-manylinux_x86_64"


def settings(options: ContainerOptions) -> dict[str, object]:
    """The table `tool.cibuildwheel`."""
    create = [f"--label={LABEL}={options.run}", *(f"--env={name}" for name in options.forwarded)]
    create += [*options.user, *volume_options(options.volumes)]
    table: dict[str, object] = {
        "container-engine": {
            "name": options.engine,
            "create-args": create,
            # The build must not see the host's files.
            "disable-host-mount": True,
        },
        "manylinux-x86_64-image": options.image,
        "build-frontend": {"name": "build[uv]", "args": list(FRONTEND)},
        "dependency-versions": "latest",
        "environment": dict(options.environment),
        "before-build": f"{_INSIDE} account start",
        "repair-wheel-command": " ".join(
            [f"{_INSIDE} finish {{wheel}} {{dest_dir}}", *filter(None, [options.newest_glibc])]
        ),
        # Gate torch-symbols holds an abi3 wheel to the limited API; cibuildwheel would install
        # another program for it, here and by its name.
        "audit-command": "",
    }
    if options.own:
        table["before-build"] = f"{_INSIDE} account start && {_INSIDE} prepare {{package}}"
        if options.settings:
            table["config-settings"] = dict(options.settings)
    if options.tests is not None:
        table |= {
            "test-environment": _TEST_ENVIRONMENT | ({"UV_OFFLINE": "1"} if options.lock else {}),
            "before-test": _install(options),
            **({"test-sources": [options.tests]} if options.tests else {}),
            "test-command": " && ".join(_test_commands(options)),
        }
    return table


def _install(options: ContainerOptions) -> str:
    """What installs the packages that the wheel is tried with.

    torch first: the wheel's own range would install the newest. Bundled packages come from files,
    so that no index can replace them by name.
    """
    bundled = f" {BUNDLED}/*.whl"
    if not options.lock:
        return shlex.join(["uv", "pip", "install", *options.requires]) + bundled * options.bundled
    # The lock has what the wheels require too: nothing but it is fetched. Each file has a hash, so
    # it does not matter which index has it.
    by_hash = shlex.join([*_ANY_INDEX, *LOCKED, options.lock])
    files = f" && uv pip install --no-deps{bundled}"
    return f"env -u UV_OFFLINE uv pip install {by_hash}" + files * options.bundled


def _test_commands(options: ContainerOptions) -> Sequence[str]:
    arguments = [f"--import={name}" for name in options.imports]
    if options.tests:
        report = inside.VARIANT / inside.JUNIT
        arguments += arguments_of_tests(report, options.tests, options.chosen_tests)
    return (
        f"{_INSIDE_TESTS} {shlex.join(['test', options.project, *arguments])}",
        f"{_INSIDE_TESTS} account test",
    )


def options_toml(options: ContainerOptions) -> str:
    """The settings as a file for `cibuildwheel --config-file`."""
    lines = [f"{key} = {_value(value)}" for key, value in settings(options).items()]
    return "\n".join(["[tool.cibuildwheel]", *lines]) + "\n"


def _value(value: object) -> str:
    """A TOML value; a JSON text is a TOML basic string."""
    if isinstance(value, dict):
        inner = ", ".join(f"{_value(key)} = {_value(item)}" for key, item in value.items())
        return f"{{{inner}}}"
    if isinstance(value, list):
        # create-args has many items: one a line.
        return "[" + "".join(f"\n  {_value(item)}," for item in value) + "\n]" if value else "[]"
    # JSON escapes all characters that TOML requires, except this one.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
