"""The settings by which cibuildwheel builds a variant in its container and tries the wheel."""

import json
import shlex
from collections.abc import Mapping

from torchwheel.image.engine import LABEL, Engine, find_engine, volume_options
from torchwheel.image.images import BuiltImage, describe_image
from torchwheel.image.recipes import image_of, is_cross, python_of
from torchwheel.matrix.load import load
from torchwheel.matrix.sections import Matrix
from torchwheel.matrix.variants import Variant, python_tag, select
from torchwheel.pipeline import inside, own_build
from torchwheel.pipeline.build_records import WheelsRequest
from torchwheel.pipeline.container_options import (
    BUNDLED,
    LOCKS,
    TORCHWHEEL,
    VARIANT,
    ContainerOptions,
    options_of,
)
from torchwheel.pipeline.inputs import Run, newest_glibc
from torchwheel.pipeline.sources import project_folder
from torchwheel.smoke.requirements import LOCK_OPTIONS, find_lock
from torchwheel.smoke.testing import arguments_of_tests
from torchwheel_runtime.console import Progress
from torchwheel_runtime.errors import UsageError
from torchwheel_runtime.text import hide_secrets
from torchwheel_runtime.toolkit.cache import cache_folder

FRONTEND = ("--no-isolation", "--skip-dependency-check")
"""What `build` is told: requirements are in folders on PYTHONPATH, torchwheel among them, where it
does not look."""
_INSIDE = "python -m torchwheel.pipeline.inside"
_ANY_INDEX = ("--index-strategy", "unsafe-best-match")


def identifier_of(run: Run, variant: Variant) -> str:
    """The identifier that cibuildwheel has for the build of a variant."""
    return f"{python_tag(python_of(run.matrix, variant))}-manylinux_x86_64"


def tests_of(run: Run, variant: Variant) -> str | None:
    """The folder of the tests of a variant's wheel; empty for imports alone.

    None if the wheel is tried elsewhere.
    """
    if not variant.ordinary:
        return None if is_cross(variant) else run.matrix.smoke.tests
    # No container has a GPU.
    own = run.matrix.own_build.tests if run.matrix.without_gpu is not None else None
    return str(run.below / own) if own else ""


def cibuildwheel_settings(
    run: Run,
    variant: Variant,
    engine: Engine,
    image: BuiltImage,
    options: ContainerOptions,
    tests: str | None,
) -> dict[str, object]:
    """The table `tool.cibuildwheel` that builds a variant.

    `tests` is the folder of the tests that try the wheel, as of `tests_of`.
    """
    create = [f"--label={LABEL}={run.id}", *(f"--env={name}" for name in options.forwarded)]
    create += [*engine.user_options(), *volume_options(options.volumes)]
    limit = newest_glibc(run, variant)
    table: dict[str, object] = {
        "container-engine": {
            "name": engine.name,
            "create-args": create,
            # The build must not see the host's files.
            "disable-host-mount": True,
        },
        "manylinux-x86_64-image": image.reference,
        "build-frontend": {"name": "build[uv]", "args": list(FRONTEND)},
        "dependency-versions": "latest",
        "environment": dict(options.environment),
        "before-build": f"{_INSIDE} account start",
        "repair-wheel-command": " ".join(
            [f"{_INSIDE} finish {{wheel}} {{dest_dir}}", *filter(None, [limit])]
        ),
        # Gate torch-symbols holds an abi3 wheel to the limited API; cibuildwheel would install
        # another program for it, here and by its name.
        "audit-command": "",
    }
    if variant.ordinary:
        table["before-build"] = f"{_INSIDE} account start && {_INSIDE} prepare {{package}}"
        if given := run.matrix.own_build.config_settings:
            table["config-settings"] = dict(given)
    if tests is not None:
        lock = _lock(run, variant)
        # The tests must not see the torchwheel of our own steps, but the installed one or none.
        table["test-environment"] = {"PYTHONPATH": "", **({"UV_OFFLINE": "1"} if lock else {})}
        table["before-test"] = _install_command(run, variant, options, lock)
        if tests:
            table["test-sources"] = [tests]
        table["test-command"] = _test_command(run, variant, tests)
    return table


def _install_command(run: Run, variant: Variant, options: ContainerOptions, lock: str) -> str:
    """What installs the packages that the wheel is tried with.

    torch first: the wheel's own range would install the newest. Bundled packages come from files,
    so that no index can replace them by name.
    """
    bundled = any(place == BUNDLED for _, place, _ in options.volumes)
    files = f" {BUNDLED}/*.whl"
    if not lock:
        requires = requirements_to_try(run.matrix, variant)
        if variant.ordinary:
            # The torch that it was built against.
            requires = ("--requirement", f"{VARIANT}/{own_build.TORCH}", *requires[1:])
        return shlex.join(["uv", "pip", "install", *requires]) + files * bundled
    # The lock has what the wheels require too: nothing but it is fetched. Each file has a hash, so
    # it does not matter which index has it.
    by_hash = shlex.join([*_ANY_INDEX, *LOCK_OPTIONS, lock])
    without = f" && uv pip install --no-deps{files}"
    return f"env -u UV_OFFLINE uv pip install {by_hash}" + without * bundled


def _test_command(run: Run, variant: Variant, tests: str) -> str:
    imports = run.matrix.own_build.imports if variant.ordinary else ()
    arguments = [f"--import={name}" for name in imports]
    if tests:
        report = inside.VARIANT / inside.JUNIT
        arguments += arguments_of_tests(report, tests, run.matrix.smoke.without_gpu)
    step = f"PYTHONPATH={TORCHWHEEL} {_INSIDE}"
    return (
        f"{step} {shlex.join(['test', run.matrix.project.name, *arguments])} && {step} account test"
    )


def requirements_to_try(matrix: Matrix, variant: Variant) -> tuple[str, ...]:
    """The requirements of the packages that a variant's wheel is tried with, torch first."""
    stable = f"=={variant.built_with}.*" if variant.ordinary else f"=={matrix.smoke.torch}"
    of_torch = stable if variant.abi == "stable" else variant.torch_range
    return (f"torch{of_torch}", *matrix.smoke.requires)


def _lock(run: Run, variant: Variant) -> str:
    """The lock whose packages the wheel is tried with; empty to take what an index gives."""
    if run.trial.locks is None:
        return ""
    python = python_of(run.matrix, variant)
    markers = {"python_version": python, "python_full_version": f"{python}.0"}
    lock = find_lock(run.trial.locks, requirements_to_try(run.matrix, variant), markers)
    return f"{LOCKS}/{lock.name}"


def settings_toml(settings: Mapping[str, object]) -> str:
    """The table `tool.cibuildwheel` as a file for `cibuildwheel --config-file`."""
    lines = [f"{key} = {_value(value)}" for key, value in settings.items()]
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


def show_options(request: WheelsRequest, progress: Progress) -> str:
    """The options of the native variants of `request`, as one TOML table each."""
    matrix = load(request.matrix)
    engine, root = find_engine(), request.matrix.resolve().parent
    variants = select(matrix, request.variants or ("default",))
    native = [build for variant in variants for build in variant.builds]
    if not native:
        raise UsageError("none of these variants has native code: nothing is built in a container")
    cache = cache_folder()
    source = project_folder(matrix, root, cache, progress)
    run = Run(matrix, root, source, request.dist.resolve(), cache, "", (), progress, engine)
    parts = []
    for variant in native:
        built = describe_image(engine, image_of(matrix, variant, root))
        options = options_of(run, variant, engine, built)
        table = cibuildwheel_settings(run, variant, engine, built, options, tests_of(run, variant))
        parts.append(
            f"# {variant.id}: cibuildwheel --only {identifier_of(run, variant)}\n"
            f"{settings_toml(table)}"
        )
    return hide_secrets("\n".join(parts))
