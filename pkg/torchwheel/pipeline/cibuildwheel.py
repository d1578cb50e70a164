"""The options that cibuildwheel gets for one variant, as data and as its TOML file."""

import dataclasses
import json
import os
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from torchwheel.console import Progress
from torchwheel.errors import UsageError
from torchwheel.image.build import Built, describe
from torchwheel.image.engine import LABEL, Volume, find_engine, volume_options
from torchwheel.image.recipes import image_of, is_cross, python_of
from torchwheel.matrix.load import load
from torchwheel.matrix.variants import Variant, python_tag, select
from torchwheel.pipeline import inside
from torchwheel.pipeline.records import WheelsRequest
from torchwheel.pipeline.run import BuildPaths, Run, build_environment
from torchwheel.smoke.requirements import BUNDLED_FOLDER
from torchwheel.smoke.results import pytest_arguments, select_tests
from torchwheel.toolkit.cache import cache_folder
from torchwheel.toolkit.headers import torch_headers
from torchwheel.toolkit.index import ca_bundle
from torchwheel.validate import findings

# Where things are in the container; the same in each, so that compile commands are the same too.
PROJECT = "/project"
KEPT = str(inside.KEPT)
SHARED = "/shared"
BUNDLED = str(inside.BUNDLED)
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
        bundled: whether the wheels in BUNDLED are installed before it.
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
    bundled: bool = False

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
        # torch first: the wheel's own range would install the newest. Bundled packages come from
        # files, so that no index can replace them by name.
        install = shlex.join(["uv", "pip", "install", *options.requires])
        table |= {
            "test-environment": _FOR_TESTS,
            "before-test": install + f" {BUNDLED}/*.whl" * options.bundled,
            "test-sources": [options.tests],
            "test-command": " && ".join(
                _tests(options.project, select_tests(options.tests, options.chosen))
            ),
        }
    return table


def _tests(project: str, tests: Sequence[str]) -> Sequence[str]:
    return (
        f"{_INSIDE_TESTS} {shlex.join(['probe', project])}",
        shlex.join(["python", *pytest_arguments(inside.KEPT / inside.JUNIT, *tests)]),
        f"{_INSIDE_TESTS} account test",
    )


def options_toml(options: Options) -> str:
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


# A CUDA torch has 5 GB, and each Python another: with less room they go with their container.
_ROOM_FOR_CACHE = 32 << 30
# How pip is told where packages are; uv has names of its own for the same.
_INDEX_VARIABLES = {"PIP_INDEX_URL": "UV_DEFAULT_INDEX", "PIP_EXTRA_INDEX_URL": "UV_INDEX"}
_SCCACHE = ("SCCACHE_REDIS_ENDPOINT", "SCCACHE_BUCKET", "SCCACHE_GHA_ENABLED", "SCCACHE_MEMCACHED")


def torch_of(run: Run, variant: Variant) -> Path:
    """The headers of the torch that a native variant is built for."""
    return torch_headers(variant.torch_release or "", run.cache, run.progress)


def options_of(
    run: Run,
    variant: Variant,
    engine: str,
    image: Built,
    torch: Path,
    environ: Mapping[str, str] = os.environ,
) -> Options:
    """Everything cibuildwheel is told about one variant; `torch` holds its torch's headers."""
    toolkit = variant.toolkit
    if toolkit is None:
        raise UsageError(f"{variant.id}: has no native code, so it is built on the host")
    volumes: list[Volume] = [
        OWN,
        (str(torch), TORCH, "ro"),
        (str(run.kept(variant)), KEPT, "rw"),
        (str(run.shared(toolkit, image.compilers)), SHARED, "rw"),
    ]
    passed = _compiler_cache(environ)
    environment = {
        "PYTHONPATH": TORCHWHEEL,
        "MAX_JOBS": str(run.jobs),
        **build_environment(variant, _places(variant), "sccache" if passed else ""),
    }
    if toolkit.backend == "rocm":
        # PyPI has no torch for ROCm: the wheel is tried in one for CUDA, where its kernels are
        # registered and, without a GPU, do not run. An installed wheel would be refused there.
        environment[findings.VARIABLE] = "backend"
    cross = is_cross(variant)
    if not cross and shutil.disk_usage(run.cache).free < _ROOM_FOR_CACHE:
        environment["UV_NO_CACHE"] = "1"
    elif not cross:
        uv = run.cache / "uv"
        uv.mkdir(exist_ok=True)
        volumes.append((str(uv), UV_CACHE, "rw"))
        # Links, not copies: a CUDA torch has 5 GB.
        environment |= {"UV_CACHE_DIR": UV_CACHE, "UV_LINK_MODE": "symlink"}
    bundled = bool(run.matrix.project.bundled) and not cross
    if bundled:
        volumes.append((str(run.dist / BUNDLED_FOLDER), BUNDLED, "ro"))
    more_volumes, more = index_options(environ)
    if passed:
        # A server of the container's own: on the host's network the usual port may be another's,
        # which does not see these files.
        environment["SCCACHE_SERVER_UDS"] = "/tmp/sccache.sock"  # noqa: S108 - in the container
    smoke = run.matrix.smoke
    torch_pin = f"torch=={smoke.torch}" if variant.abi == "stable" else f"torch{variant.torch}"
    return Options(
        engine=engine,
        run=run.id,
        image=image.reference,
        python=python_of(run.matrix, variant),
        volumes=(*volumes, *more_volumes),
        user=f"{os.geteuid()}:{os.getegid()}" if os.geteuid() else None,
        passed=passed,
        environment={**environment, **more},
        project=run.matrix.project.name,
        tests=None if cross else smoke.tests,
        requires=(torch_pin, *smoke.requires),
        chosen=smoke.without_gpu,
        bundled=bundled,
    )


def _compiler_cache(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The variables of a compiler cache that machines share; none where none is named.

    A variable that CI leaves empty is one that is not set.
    """
    found = tuple(n for n in sorted(environ) if n.startswith(("SCCACHE_", "AWS_")) and environ[n])
    return found if any(name in _SCCACHE for name in found) else ()


def _places(variant: Variant) -> BuildPaths:
    rocm = variant.toolkit is not None and variant.toolkit.backend == "rocm"
    return BuildPaths(
        toolkit="/opt/rocm" if rocm else "/usr/local/cuda",
        torch=TORCH,
        build=f"{KEPT}/native",
        shared=SHARED,
        sysroot="/opt/sysroot" if rocm else None,
        cxx=_compiler(rocm=rocm, cross=is_cross(variant)),
    )


def _compiler(*, rocm: bool, cross: bool) -> str | None:
    """The host compiler of an image, where it is not its g++."""
    if rocm:
        return "/opt/rocm/llvm/bin/clang++"
    return "aarch64-linux-gnu-g++" if cross else None


def index_options(environ: Mapping[str, str]) -> tuple[list[Volume], dict[str, str]]:
    """What pip is told on this machine, for uv in the container: indexes, folders, certificates."""
    volumes: list[Volume] = []
    told_ = {uv: environ[pip] for pip, uv in _INDEX_VARIABLES.items() if environ.get(pip)}
    links = [one for one in environ.get("PIP_FIND_LINKS", "").split() if Path(one).is_dir()]
    if links:
        volumes += [(one, one, "ro") for one in links]
        told_["UV_FIND_LINKS"] = ",".join(links)
    if bundle := ca_bundle(environ):
        volumes.append((str(bundle), CA_BUNDLE, "ro"))
        told_["SSL_CERT_FILE"] = CA_BUNDLE
    return volumes, told_


def show_options(matrix_file: Path, request: WheelsRequest, dist: Path, progress: Progress) -> str:
    """The options of the native variants that `request` names, one TOML table after another."""
    matrix = load(matrix_file)
    engine, root = find_engine(), matrix_file.resolve().parent
    native = [v for v in select(matrix, request.variants or ("default",)) if v.toolkit]
    if not native:
        raise UsageError("none of these variants has native code: nothing is built in a container")
    run = Run(matrix, root, dist.resolve(), cache_folder(), "", (), progress, engine)
    parts = []
    for variant in native:
        built = describe(engine, image_of(matrix, variant, root))
        options = options_of(run, variant, engine.name, built, torch_of(run, variant))
        parts.append(
            f"# {variant.id}: cibuildwheel --only {options.identifier}\n{options_toml(options)}"
        )
    return "\n".join(parts)
