"""Builds and tries a variant in its image: cibuildwheel owns the container."""

import contextlib
import dataclasses
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from torchwheel import claims as claims_file
from torchwheel.builder.ninja import is_progress
from torchwheel.errors import TorchwheelError, UsageError
from torchwheel.files import write_text
from torchwheel.image.build import Built, ca_bundle
from torchwheel.image.engine import Engine
from torchwheel.image.of_variant import is_cross, python_of
from torchwheel.matrix.resolve import Variant
from torchwheel.pipeline import cibuildwheel as cibw
from torchwheel.pipeline import inside
from torchwheel.pipeline.log import reason
from torchwheel.pipeline.run import Run, claims_of
from torchwheel.pipeline.sources import stage
from torchwheel.pipeline.told import Places, told
from torchwheel.smoke import junit
from torchwheel.smoke.assemble import from_files
from torchwheel.smoke.record import Record
from torchwheel.toolkit.headers import torch_headers

# A CUDA torch has 5 GB, and each Python another: with less room they go with their container.
_ROOM_FOR_CACHE = 32 << 30
# The image's build user.
_USER = 1000
# How pip is told where packages are; uv has names of its own for the same.
_INDEX_VARIABLES = {"PIP_INDEX_URL": "UV_DEFAULT_INDEX", "PIP_EXTRA_INDEX_URL": "UV_INDEX"}
_SCCACHE = ("SCCACHE_REDIS_ENDPOINT", "SCCACHE_BUCKET", "SCCACHE_GHA_ENABLED", "SCCACHE_MEMCACHED")


def build(
    run: Run, variant: Variant, engine: Engine, image: Built, out: Path, *, tried: bool = True
) -> tuple[Path, Record | None]:
    """The finished wheel of `variant`, below `out`, and how its tests went in the container.

    There is no record if it is not to be `tried`, or is for another machine than this one.
    """
    kept = run.kept(variant)
    for name in (inside.PROBE, inside.JUNIT, *map(inside.usage_file, inside.STEPS)):
        (kept / name).unlink(missing_ok=True)
    write_text(kept / inside.CLAIMS, claims_file.dumps(claims_of(variant)))
    options = options_of(run, variant, engine.name, image, torch_of(run, variant))
    if not tried:
        options = dataclasses.replace(options, tests=None)
    for host, _, mode in options.volumes:
        if mode == "rw":
            _writable(Path(host))
    project = out / "project"
    stage(run.source, project)
    config = out / "cibuildwheel.toml"
    write_text(config, cibw.toml(options))
    wheels = out / "wheels"
    log = kept / "build.log"
    status = _cibuildwheel(run, variant, engine, options, project, config, wheels, log)
    found = sorted(wheels.glob("*.whl"))
    if status or len(found) != 1:
        raise TorchwheelError(f"{_why(kept, log, status)} (all of it in {log})")
    if options.tests is None:
        return found[0], None
    return found[0], from_files(found[0], kept / inside.PROBE, kept / inside.JUNIT, status)


def _why(kept: Path, log: Path, status: int) -> str:
    """The first test that failed, if it came to that, else the line of the log that says why."""
    with contextlib.suppress(OSError, TorchwheelError):
        for test in junit.parse((kept / inside.JUNIT).read_text(encoding="utf-8")):
            if test.outcome == "failed":
                return f"smoke: {test.name}: {test.reason}"
    return reason(log, f"cibuildwheel ended with status {status}")


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
    volumes = [
        (str(Path(__file__).parent.parent), f"{cibw.TORCHWHEEL}/torchwheel", "ro"),
        (str(torch), cibw.TORCH, "ro"),
        (str(run.kept(variant)), cibw.KEPT, "rw"),
        (str(run.shared(toolkit, image.compilers)), cibw.SHARED, "rw"),
    ]
    environment = {
        "PYTHONPATH": cibw.TORCHWHEEL,
        "MAX_JOBS": str(run.jobs),
        **told(variant, _places(variant)),
    }
    cross = is_cross(variant)
    if not cross and shutil.disk_usage(run.cache).free < _ROOM_FOR_CACHE:
        environment["UV_NO_CACHE"] = "1"
    elif not cross:
        uv = run.cache / "uv"
        uv.mkdir(exist_ok=True)
        volumes.append((str(uv), cibw.UV_CACHE, "rw"))
        # Links, not copies: a CUDA torch has 5 GB.
        environment |= {"UV_CACHE_DIR": cibw.UV_CACHE, "UV_LINK_MODE": "symlink"}
    more_volumes, more = index_options(environ)
    # A variable that CI leaves empty is one that is not set.
    passed = tuple(n for n in sorted(environ) if n.startswith(("SCCACHE_", "AWS_")) and environ[n])
    if any(name in _SCCACHE for name in passed):
        environment["TORCHWHEEL_LAUNCHER"] = "sccache"
    smoke = run.matrix.smoke
    torch_pin = f"torch=={smoke.torch}" if variant.abi == "stable" else f"torch{variant.torch}"
    return cibw.Options(
        engine=engine,
        run=run.id,
        image=image.reference,
        python=python_of(run.matrix, variant),
        volumes=(*volumes, *more_volumes),
        user=f"{os.geteuid()}:{os.getegid()}" if os.geteuid() else None,
        passed=passed if "TORCHWHEEL_LAUNCHER" in environment else (),
        environment={**environment, **more},
        project=run.matrix.project.name,
        tests=None if cross else smoke.tests,
        requires=(torch_pin, *smoke.requires),
    )


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


def index_options(environ: Mapping[str, str]) -> tuple[list[tuple[str, str, str]], dict[str, str]]:
    """What pip is told on this machine, for uv in the container: indexes, folders, certificates."""
    volumes: list[tuple[str, str, str]] = []
    told_ = {uv: environ[pip] for pip, uv in _INDEX_VARIABLES.items() if environ.get(pip)}
    links = [one for one in environ.get("PIP_FIND_LINKS", "").split() if Path(one).is_dir()]
    if links:
        volumes += [(one, one, "ro") for one in links]
        told_["UV_FIND_LINKS"] = ",".join(links)
    if bundle := ca_bundle(environ):
        volumes.append((str(bundle), cibw.CA_BUNDLE, "ro"))
        told_["SSL_CERT_FILE"] = cibw.CA_BUNDLE
    return volumes, told_


def _writable(folder: Path) -> None:
    """The build user of the image must be able to write there; of others' folders only root can."""
    if os.geteuid() == 0:
        os.chown(folder, _USER, _USER)


def _cibuildwheel(
    run: Run,
    variant: Variant,
    engine: Engine,
    options: cibw.Options,
    project: Path,
    config: Path,
    wheels: Path,
    log: Path,
) -> int:
    if importlib.util.find_spec("cibuildwheel") is None:
        raise TorchwheelError(
            "cibuildwheel is not installed here: `pip install cibuildwheel` (Python 3.11 or later)"
        )
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CIBW_")}
    command = [sys.executable, "-m", "cibuildwheel", "--only", options.identifier]
    command += ["--config-file", str(config), "--output-dir", str(wheels)]
    with (
        log.open("w", encoding="utf-8") as written,
        subprocess.Popen(
            command,
            cwd=project,
            env={**kept, **engine.environ, "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process,
    ):
        for line in process.stdout or ():
            written.write(line)
            text = line.strip()
            if is_progress(line) or text.endswith("..."):
                run.progress.step(f"{variant.id}: {text}")
    return process.returncode


def used(kept: Path) -> tuple[dict[str, float], int | None]:
    """CPU seconds of each step of the last container, and the most memory up to the build's end."""
    seconds: dict[str, float] = {}
    before, peak = 0.0, None
    for step in inside.STEPS:
        try:
            found = json.loads((kept / inside.usage_file(step)).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if found["cpu_seconds"] is not None:
            seconds[step] = round(found["cpu_seconds"] - before, 3)
            before = found["cpu_seconds"]
        if step == "build":
            peak = found["peak_bytes"]
    return seconds, peak
