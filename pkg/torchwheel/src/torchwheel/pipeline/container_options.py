"""What the container of a variant is given: volumes, variables, caches, the plan of its build."""

import dataclasses
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import torchwheel
import torchwheel_runtime
from torchwheel.compilers.compiler_cache import ENDLESS
from torchwheel.image.engine import Engine, Volume
from torchwheel.image.images import BuiltImage
from torchwheel.image.recipes import is_cross, standard_of
from torchwheel.inspect.project_scripts import why_empty
from torchwheel.matrix.sections import Toolkit
from torchwheel.matrix.variants import Variant
from torchwheel.pipeline import inside, own_build
from torchwheel.pipeline.inputs import (
    NATIVE,
    BuildPaths,
    Run,
    build_environment,
    own_build_variables,
    torch_requirement,
)
from torchwheel.pipeline.own_build import OwnBuildPlan
from torchwheel.smoke.requirements import BUNDLED_FOLDER
from torchwheel_runtime.arch.lists import arch_list
from torchwheel_runtime.errors import UsageError
from torchwheel_runtime.fetch import ca_bundle
from torchwheel_runtime.ownership import closed_folder
from torchwheel_runtime.shards import Shard
from torchwheel_runtime.toolkit.headers import torch_headers
from torchwheel_runtime.validate import findings

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

# A CUDA torch has 5 GB, one for each Python. With less free space nothing is cached.
_CACHE_SPACE = 32 << 30
# A server of the container's own: on the host's network another server may have the usual port, and
# it cannot read these files.
_SCCACHE = {"SCCACHE_SERVER_UDS": "/tmp/sccache.sock", **ENDLESS}  # noqa: S108 - in the container
# The variables that name pip's indexes, and uv's names for them.
_INDEX_VARIABLES = {"PIP_INDEX_URL": "UV_DEFAULT_INDEX", "PIP_EXTRA_INDEX_URL": "UV_INDEX"}
COMPILER_CACHES: Mapping[str, tuple[str, ...]] = {
    "SCCACHE_BUCKET": (
        *("SCCACHE_ENDPOINT", "SCCACHE_REGION", "SCCACHE_S3_KEY_PREFIX", "SCCACHE_S3_USE_SSL"),
        *("SCCACHE_S3_NO_CREDENTIALS", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
        "AWS_SESSION_TOKEN",
    ),
    "SCCACHE_REDIS_ENDPOINT": (
        *("SCCACHE_REDIS_USERNAME", "SCCACHE_REDIS_PASSWORD", "SCCACHE_REDIS_DB"),
        *("SCCACHE_REDIS_EXPIRATION", "SCCACHE_REDIS_KEY_PREFIX"),
    ),
    "SCCACHE_MEMCACHED": ("SCCACHE_MEMCACHED_EXPIRATION", "SCCACHE_MEMCACHED_KEY_PREFIX"),
}
"""The variable that names a compiler cache, and those that configure it.

A container gets no others: a build runs code of many authors, and a machine may have keys for other
things.
"""


@dataclasses.dataclass(frozen=True)
class ContainerOptions:
    """What every container of a variant gets.

    Attributes:
        volumes: the mounts.
        forwarded: names of variables that are handed through; their values are written nowhere.
        environment: variables of the build and of the tests.
    """

    volumes: tuple[Volume, ...]
    forwarded: tuple[str, ...]
    environment: Mapping[str, str]


def options_of(
    run: Run,
    variant: Variant,
    engine: Engine,
    image: BuiltImage,
    environ: Mapping[str, str] = os.environ,
) -> ContainerOptions:
    """The options that build one variant; fetches the headers of its torch."""
    toolkit, ordinary, cross = variant.toolkit, variant.ordinary, is_cross(variant)
    if toolkit is None:
        raise UsageError(f"{variant.id}: has no native code, so it is built on the host")
    if ordinary and cross:
        raise UsageError(
            f"{variant.id}: an ordinary project is built on a machine of its platform; take it out "
            "under exclude"
        )
    forwarded = _compiler_cache(environ)
    own: tuple[Volume, ...] = (
        (str(run.variant_folder(variant)), VARIANT, "rw"),
        (str(run.shared_folder(toolkit, image.compilers)), SHARED, "rw"),
    )
    linked = _linked_volumes(run, variant)
    locks: list[Volume] = [(str(run.trial.locks.resolve()), LOCKS, "ro")] if run.trial.locks else []
    index_volumes, index = index_options(environ)
    cached: list[Volume] = []
    uv: dict[str, str] = {}
    if not cross:
        # An ordinary project's torch is installed before it is built.
        cached, uv = _uv_cache(run.cache, 0 if ordinary else _CACHE_SPACE, engine)
    if ordinary:
        more = [*own, *cached, *index_volumes, *linked, *locks]
        environment = {**_own_build_environment(run, toolkit, forwarded), **uv, **index}
    else:
        given: list[Volume] = []
        if run.matrix.project.bundled and not cross:
            given = [(str(run.dist / BUNDLED_FOLDER), BUNDLED, "ro")]
        torch = torch_headers(variant.torch_release, run.cache, run.progress)
        headers: Volume = (str(torch), TORCH, "ro")
        more = [headers, *own, *linked, *cached, *given, *locks, *index_volumes]
        environment = {**_environment(run, variant, linked, forwarded), **uv}
        environment |= {**(_SCCACHE if forwarded else {}), **index}
    return ContainerOptions((*OWN, *more), forwarded, environment)


def _environment(
    run: Run, variant: Variant, linked: Sequence[Volume], forwarded: Sequence[str]
) -> dict[str, str]:
    """The variables of a build by torchwheel's builder."""
    paths = dataclasses.replace(
        build_paths(variant), kernels=tuple(inside for _, inside, _ in linked)
    )
    launcher = "sccache" if forwarded else ""
    environment = {
        "PYTHONPATH": TORCHWHEEL,
        "MAX_JOBS": str(run.jobs),
        **build_environment(variant, paths, launcher, kernels_only=run.kernels_only),
    }
    if variant.toolkit and variant.toolkit.backend == "rocm":
        # PyPI has no torch for ROCm, so the wheel is tried in a torch for CUDA: its kernels are
        # registered and, without a GPU, do not run. Otherwise such a wheel refuses to load.
        environment[findings.VARIABLE] = "backend"
    return environment


def _own_build_environment(run: Run, toolkit: Toolkit, forwarded: Sequence[str]) -> dict[str, str]:
    """The variables of an ordinary project's build, against the torch of its release."""
    project = run.matrix.own_build.environment_for(toolkit.name)
    places = own_build.PLACES
    home, own = places.toolkit_home, places.environment
    return {
        **project,
        "PYTHONPATH": f"{TORCHWHEEL}:{own}",
        # cibuildwheel wants its Python first.
        "PATH": f"{places.ninja.parent}:$PATH:{home}/bin:{own}/bin",
        **own_build_variables(toolkit, home, places.cxx, run.jobs, project.get("FORCE_CUDA", "1")),
        **_SCCACHE,
        **({} if forwarded else {"SCCACHE_DIR": f"{SHARED}/sccache", "SCCACHE_CACHE_SIZE": "5G"}),
    }


def _linked_volumes(run: Run, variant: Variant) -> list[Volume]:
    """The artifacts whose objects a variant links."""
    return [
        (str(artifact.folder), f"{KERNELS}/{artifact.folder.name}", "ro")
        for artifact in run.linked.get(variant.id, ())
    ]


def _uv_cache(cache: Path, space: int, engine: Engine) -> tuple[list[Volume], dict[str, str]]:
    """Uv's cache for containers; none where the disk has less than `space` bytes free."""
    if shutil.disk_usage(cache).free < space:
        return [], {"UV_NO_CACHE": "1"}
    # The user of the container owns what is in it, so nobody else enters it, and another user of
    # containers gets another one.
    uv = closed_folder(cache / "containers") / f"uv-{engine.user[0]}"
    uv.mkdir(exist_ok=True)
    # Links, not copies: a CUDA torch has 5 GB.
    return [(str(uv), UV_CACHE, "rw")], {"UV_CACHE_DIR": UV_CACHE, "UV_LINK_MODE": "symlink"}


def plan_of(run: Run, variant: Variant, shard: Shard | None = None) -> OwnBuildPlan:
    """What the container needs to know of an ordinary project's build, or of a shard of it."""
    linked: Literal["link", ""] = "link" if run.linked.get(variant.id) else ""
    paths = build_paths(variant)
    build, ordinary, toolkit = run.matrix.own_build, run.matrix.abis.ordinary, variant.toolkit
    return OwnBuildPlan(
        torch=torch_requirement(run, variant) or "torch",
        requires=build.requires,
        settings=build.config_settings,
        archs=arch_list(toolkit.archs) if toolkit else "",
        archs_by=build.archs_by,
        backend=toolkit.backend if toolkit else "cuda",
        toolkit=Path(paths.toolkit),
        cxx=Path(paths.cxx or "/usr/bin/g++"),
        launcher=("sccache",) if run.launcher else (),
        python=ordinary.python if ordinary else "each",
        standard=standard_of(variant),
        work="shard" if shard else linked,
        shard=str(shard or Shard()),
        why_empty=why_empty(run.source),
    )


def _compiler_cache(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Names of the variables of a compiler cache that machines share; none without such a cache.

    CI leaves variables empty that it does not set.
    """
    named = {name: others for name, others in COMPILER_CACHES.items() if environ.get(name)}
    names = sorted({*named, *(other for others in named.values() for other in others)})
    return tuple(name for name in names if environ.get(name))


def build_paths(variant: Variant) -> BuildPaths:
    """Where the container of a variant has what it builds with."""
    paths = BuildPaths("/usr/local/cuda", TORCH, f"{VARIANT}/{NATIVE}", SHARED)
    if variant.toolkit and variant.toolkit.backend == "rocm":
        cxx = "/opt/rocm/llvm/bin/clang++"
        return dataclasses.replace(paths, toolkit="/opt/rocm", sysroot="/opt/sysroot", cxx=cxx)
    return dataclasses.replace(paths, cxx="aarch64-linux-gnu-g++" if is_cross(variant) else None)


def index_options(environ: Mapping[str, str]) -> tuple[list[Volume], dict[str, str]]:
    """This machine's settings of pip, for uv in the container: indexes, folders, certificates."""
    volumes: list[Volume] = []
    uv_environ = {uv: environ[pip] for pip, uv in _INDEX_VARIABLES.items() if environ.get(pip)}
    links = [
        folder for folder in environ.get("PIP_FIND_LINKS", "").split() if Path(folder).is_dir()
    ]
    if links:
        volumes += [(folder, folder, "ro") for folder in links]
        uv_environ["UV_FIND_LINKS"] = ",".join(links)
    if bundle := ca_bundle(environ):
        volumes.append((str(bundle), CA_BUNDLE, "ro"))
        uv_environ["SSL_CERT_FILE"] = CA_BUNDLE
    return volumes, uv_environ
