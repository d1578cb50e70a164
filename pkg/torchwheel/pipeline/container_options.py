"""What cibuildwheel is told about a variant: the options of one container build."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from torchwheel.errors import UsageError
from torchwheel.image.build import Built
from torchwheel.image.engine import Volume
from torchwheel.image.of_variant import is_cross, python_of
from torchwheel.matrix.resolve import Variant
from torchwheel.pipeline import cibuildwheel as cibw
from torchwheel.pipeline.run import Run
from torchwheel.pipeline.told import Places, told
from torchwheel.smoke.companions import FOLDER
from torchwheel.toolkit.headers import torch_headers
from torchwheel.toolkit.index import ca_bundle
from torchwheel.validate import override

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
) -> cibw.Options:
    """Everything cibuildwheel is told about one variant; `torch` holds its torch's headers."""
    toolkit = variant.toolkit
    if toolkit is None:
        raise UsageError(f"{variant.id}: has no native code, so it is built on the host")
    volumes: list[Volume] = [
        cibw.OWN,
        (str(torch), cibw.TORCH, "ro"),
        (str(run.kept(variant)), cibw.KEPT, "rw"),
        (str(run.shared(toolkit, image.compilers)), cibw.SHARED, "rw"),
    ]
    passed = _compiler_cache(environ)
    environment = {
        "PYTHONPATH": cibw.TORCHWHEEL,
        "MAX_JOBS": str(run.jobs),
        **told(variant, _places(variant), "sccache" if passed else ""),
    }
    if toolkit.backend == "rocm":
        # PyPI has no torch for ROCm: the wheel is tried in one for CUDA, where its kernels are
        # registered and, without a GPU, do not run. An installed wheel would be refused there.
        environment[override.VARIABLE] = "backend"
    cross = is_cross(variant)
    if not cross and shutil.disk_usage(run.cache).free < _ROOM_FOR_CACHE:
        environment["UV_NO_CACHE"] = "1"
    elif not cross:
        uv = run.cache / "uv"
        uv.mkdir(exist_ok=True)
        volumes.append((str(uv), cibw.UV_CACHE, "rw"))
        # Links, not copies: a CUDA torch has 5 GB.
        environment |= {"UV_CACHE_DIR": cibw.UV_CACHE, "UV_LINK_MODE": "symlink"}
    companions = bool(run.matrix.project.companions) and not cross
    if companions:
        volumes.append((str(run.dist / FOLDER), cibw.COMPANIONS, "ro"))
    more_volumes, more = index_options(environ)
    if passed:
        # A server of the container's own: on the host's network the usual port may be another's,
        # which does not see these files.
        environment["SCCACHE_SERVER_UDS"] = "/tmp/sccache.sock"  # noqa: S108 - in the container
    smoke = run.matrix.smoke
    torch_pin = f"torch=={smoke.torch}" if variant.abi == "stable" else f"torch{variant.torch}"
    return cibw.Options(
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
        companions=companions,
    )


def _compiler_cache(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The variables of a compiler cache that machines share; none where none is named.

    A variable that CI leaves empty is one that is not set.
    """
    found = tuple(n for n in sorted(environ) if n.startswith(("SCCACHE_", "AWS_")) and environ[n])
    return found if any(name in _SCCACHE for name in found) else ()


def _places(variant: Variant) -> Places:
    rocm = variant.toolkit is not None and variant.toolkit.backend == "rocm"
    return Places(
        toolkit="/opt/rocm" if rocm else "/usr/local/cuda",
        torch=cibw.TORCH,
        build=f"{cibw.KEPT}/native",
        shared=cibw.SHARED,
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
        volumes.append((str(bundle), cibw.CA_BUNDLE, "ro"))
        told_["SSL_CERT_FILE"] = cibw.CA_BUNDLE
    return volumes, told_
