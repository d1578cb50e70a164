"""What the container of a variant is given: volumes, variables, caches, the plan of its build."""

import dataclasses
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from torchwheel.image.build import BuiltImage, describe_image
from torchwheel.image.engine import Engine, Volume, find_engine
from torchwheel.image.recipes import image_of, is_cross, python_of
from torchwheel.matrix.load import load
from torchwheel.matrix.sections import Matrix, Toolkit
from torchwheel.matrix.variants import Variant, select
from torchwheel.pipeline import own_build
from torchwheel.pipeline.cibuildwheel import (
    BUNDLED,
    CA_BUNDLE,
    KERNELS,
    LOCKS,
    OWN,
    SHARED,
    TORCH,
    TORCHWHEEL,
    UV_CACHE,
    VARIANT,
    ContainerOptions,
    options_toml,
)
from torchwheel.pipeline.inputs import (
    NATIVE,
    BuildPaths,
    Run,
    build_environment,
    kernels_only,
    torch_requirement,
)
from torchwheel.pipeline.own_build import OwnBuildPlan
from torchwheel.pipeline.records import WheelsRequest
from torchwheel.pipeline.sources import project_folder
from torchwheel.smoke.requirements import BUNDLED_FOLDER, find_lock
from torchwheel.steps.compiler_cache import ENDLESS
from torchwheel_runtime.arch.lists import VARIABLES, arch_list, cmake_archs
from torchwheel_runtime.console import Progress
from torchwheel_runtime.errors import UsageError
from torchwheel_runtime.fetch import ca_bundle
from torchwheel_runtime.ownership import closed_folder
from torchwheel_runtime.shards import Shard
from torchwheel_runtime.text import hide_users
from torchwheel_runtime.toolkit.cache import cache_folder
from torchwheel_runtime.toolkit.headers import torch_headers
from torchwheel_runtime.validate import findings

# A CUDA torch has 5 GB, one for each Python. With less free space nothing is cached.
_CACHE_SPACE = 32 << 30
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


def headers_of(run: Run, variant: Variant) -> Path:
    """The folder with the headers of the torch that a native variant is built for."""
    if variant.ordinary:
        return run.cache  # torch itself is installed for it
    return torch_headers(variant.torch_release, run.cache, run.progress)


def options_of(
    run: Run,
    variant: Variant,
    engine: Engine,
    image: BuiltImage,
    torch: Path,
    environ: Mapping[str, str] = os.environ,
) -> ContainerOptions:
    """The options that build one variant; `torch` is the folder of its torch's headers."""
    toolkit = variant.toolkit
    if toolkit is None:
        raise UsageError(f"{variant.id}: has no native code, so it is built on the host")
    if variant.ordinary:
        return _options_of_own_build(run, variant, engine, image, environ)
    volumes: list[Volume] = [
        *OWN,
        (str(torch), TORCH, "ro"),
        (str(run.variant_folder(variant)), VARIANT, "rw"),
        (str(run.shared_folder(toolkit, image.compilers)), SHARED, "rw"),
    ]
    linked = _linked_volumes(run, variant)
    volumes += linked
    forwarded = _compiler_cache(environ)
    paths = dataclasses.replace(
        _build_paths(variant), kernels=tuple(inside for _, inside, _ in linked)
    )
    environment = {
        "PYTHONPATH": TORCHWHEEL,
        "MAX_JOBS": str(run.jobs),
        **build_environment(variant, paths, "sccache" if forwarded else ""),
        **kernels_only(run),
    }
    if toolkit.backend == "rocm":
        # PyPI has no torch for ROCm, so the wheel is tried in a torch for CUDA: its kernels are
        # registered and, without a GPU, do not run. Otherwise such a wheel refuses to load.
        environment[findings.VARIABLE] = "backend"
    cross = is_cross(variant)
    if not cross:
        cached, settings = _uv_cache(run.cache, _CACHE_SPACE, engine)
        volumes += cached
        environment |= settings
    bundled = bool(run.matrix.project.bundled) and not cross
    if bundled:
        volumes.append((str(run.dist / BUNDLED_FOLDER), BUNDLED, "ro"))
    locks, lock = _lock(run, variant)
    more_volumes, more = index_options(environ)
    if forwarded:
        # A server of the container's own: on the host's network another server may have the usual
        # port, and it cannot read these files.
        environment |= _SCCACHE
    smoke = run.matrix.smoke
    return ContainerOptions(
        engine=engine.name,
        run=run.id,
        image=image.reference,
        python=python_of(run.matrix, variant),
        volumes=(*volumes, *locks, *more_volumes),
        user=tuple(engine.user_options()),
        forwarded=forwarded,
        environment={**environment, **more},
        project=run.matrix.project.name,
        tests=None if cross else smoke.tests,
        requires=requirements_to_try(run.matrix, variant),
        lock=lock,
        chosen_tests=smoke.without_gpu,
        bundled=bundled,
    )


def requirements_to_try(matrix: Matrix, variant: Variant) -> tuple[str, ...]:
    """The requirements of the packages that a variant's wheel is tried with, torch first."""
    of_torch = f"=={matrix.smoke.torch}" if variant.abi == "stable" else variant.torch_range
    return (f"torch{of_torch}", *matrix.smoke.requires)


def _lock(run: Run, variant: Variant) -> tuple[list[Volume], str]:
    """The mount of the locks, and the one among them that the wheel is tried with; else none."""
    if run.locks is None:
        return [], ""
    python = python_of(run.matrix, variant)
    markers = {"python_version": python, "python_full_version": f"{python}.0"}
    lock = find_lock(run.locks, requirements_to_try(run.matrix, variant), markers)
    return [(str(run.locks.resolve()), LOCKS, "ro")], f"{LOCKS}/{lock.name}"


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
    build, ordinary, toolkit = run.matrix.own_build, run.matrix.abis.ordinary, variant.toolkit
    return OwnBuildPlan(
        torch=torch_requirement(run, variant) or "torch",
        requires=build.requires,
        settings=build.config_settings,
        archs=arch_list(toolkit.archs) if toolkit else "",
        archs_by=build.archs_by,
        backend=toolkit.backend if toolkit else "cuda",
        toolkit=Path(_build_paths(variant).toolkit),
        launcher=("sccache",) if run.launcher else (),
        python=ordinary.python if ordinary else "each",
        work="shard" if shard else linked,
        shard=str(shard or Shard()),
    )


def _options_of_own_build(
    run: Run, variant: Variant, engine: Engine, image: BuiltImage, environ: Mapping[str, str]
) -> ContainerOptions:
    """The options of an ordinary project's build, against the torch of its release."""
    toolkit, build = variant.toolkit, run.matrix.own_build
    if toolkit is None or is_cross(variant):
        raise UsageError(
            f"{variant.id}: an ordinary project is built on a machine of its platform; take it out "
            "under exclude"
        )
    cached, settings = _uv_cache(run.cache, 0, engine)
    index_volumes, index = index_options(environ)
    volumes: list[Volume] = [
        *OWN,
        (str(run.variant_folder(variant)), VARIANT, "rw"),
        (str(run.shared_folder(toolkit, image.compilers)), SHARED, "rw"),
        *cached,
        *index_volumes,
        *_linked_volumes(run, variant),
    ]
    forwarded = _compiler_cache(environ)
    project = build.environment_for(toolkit.name)
    home, own = str(own_build.TOOLKIT_HOME), str(own_build.ENVIRONMENT)
    environment = {
        **project,
        "PYTHONPATH": f"{TORCHWHEEL}:{own}",
        # cibuildwheel wants its Python first.
        "PATH": f"{own_build.NINJA.parent}:$PATH:{home}/bin:{own}/bin",
        "MAX_JOBS": str(run.jobs),
        "CXX": str(own_build.CXX),
        **_toolkit_variables(toolkit, home),
        # Many projects build for CUDA only if torch.cuda.is_available(); most heed this variable.
        "FORCE_CUDA": project.get("FORCE_CUDA", "1"),
        # torch 2.13 and later adds sccache itself; one launcher is enough.
        "TORCH_NO_COMPILER_WRAPPER": "1",
        **_SCCACHE,
        **({} if forwarded else {"SCCACHE_DIR": f"{SHARED}/sccache", "SCCACHE_CACHE_SIZE": "5G"}),
        **settings,
        **index,
    }
    smoke = run.matrix.smoke
    locks, lock = _lock(run, variant)
    # No container has a GPU.
    tests = "" if run.matrix.without_gpu is None else build.tests or ""
    return ContainerOptions(
        engine=engine.name,
        run=run.id,
        image=image.reference,
        python=python_of(run.matrix, variant),
        volumes=(*volumes, *locks),
        user=tuple(engine.user_options()),
        forwarded=forwarded,
        environment=environment,
        project=run.matrix.project.name,
        tests=tests,
        requires=("--requirement", f"{VARIANT}/{own_build.TORCH}", *smoke.requires),
        lock=lock,
        chosen_tests=smoke.without_gpu,
        imports=build.imports,
        own=True,
        settings=build.config_settings,
    )


def _toolkit_variables(toolkit: Toolkit, home: str) -> dict[str, str]:
    """By what torch's and CMake's builds find a toolkit, and its archs."""
    archs = {VARIABLES[toolkit.backend]: arch_list(toolkit.archs)}
    if toolkit.backend == "rocm":
        # hipcc itself goes by the image's ROCM_PATH.
        return {"ROCM_HOME": home, **archs}
    return {
        "CUDA_HOME": home,
        "CUDACXX": f"{home}/bin/nvcc",
        **archs,
        "CUDAARCHS": cmake_archs(toolkit.archs),
    }


def _compiler_cache(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Names of the variables of a compiler cache that machines share; none without such a cache.

    CI leaves variables empty that it does not set.
    """
    named = {name: others for name, others in COMPILER_CACHES.items() if environ.get(name)}
    names = sorted({*named, *(other for others in named.values() for other in others)})
    return tuple(name for name in names if environ.get(name))


def _build_paths(variant: Variant) -> BuildPaths:
    rocm = variant.toolkit is not None and variant.toolkit.backend == "rocm"
    return BuildPaths(
        toolkit="/opt/rocm" if rocm else "/usr/local/cuda",
        torch=TORCH,
        build=f"{VARIANT}/{NATIVE}",
        shared=SHARED,
        sysroot="/opt/sysroot" if rocm else None,
        cxx=_compiler(rocm=rocm, cross=is_cross(variant)),
    )


def _compiler(*, rocm: bool, cross: bool) -> str | None:
    """The host compiler of an image; None for its g++."""
    if rocm:
        return "/opt/rocm/llvm/bin/clang++"
    return "aarch64-linux-gnu-g++" if cross else None


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
        options = options_of(run, variant, engine, built, headers_of(run, variant))
        parts.append(
            f"# {variant.id}: cibuildwheel --only {options.identifier}\n{options_toml(options)}"
        )
    return hide_users("\n".join(parts))
