"""Builds a variant with this machine's own compiler, and tries it in a clean environment."""

import functools
from pathlib import Path

from torchwheel.builder.ninja import is_progress
from torchwheel.errors import UsageError
from torchwheel.matrix.variants import Variant
from torchwheel.pipeline.frontend import build_wheel
from torchwheel.pipeline.repair import repair, stamp
from torchwheel.pipeline.run import BuildPaths, Clock, Run, build_environment, claims_of
from torchwheel.smoke.record import SmokeRecord
from torchwheel.smoke.run import smoke
from torchwheel.toolkit.headers import torch_headers
from torchwheel.toolkit.host import HostCompiler, host_compiler
from torchwheel.toolkit.provide import provide


def check_buildable(variant: Variant) -> None:
    """Refuse what is built in a container only, before anything is built."""
    reasons = {
        "the aten flavour": variant.abi == "aten",
        "ROCm": variant.toolkit is not None and variant.toolkit.backend == "rocm",
        "a toolkit of packages": variant.toolkit is not None and bool(variant.toolkit.packages),
    }
    for what, holds in reasons.items():
        if holds:
            raise UsageError(f"{variant.id}: {what} is built in a container only: add --container")


@functools.cache
def _host() -> HostCompiler:
    """The machine's compiler, the same for all variants of a run."""
    return host_compiler()


def facts(variant: Variant) -> list[str]:
    """What of this machine decides the wheel."""
    if variant.toolkit is None:
        return []
    host = _host()
    return [str(host.path), host.version]


def build(run: Run, variant: Variant, out: Path, clock: Clock) -> Path:
    """The built, repaired and stamped wheel, in a folder below `out`."""
    for name in ("built", "repaired", "stamped"):
        (out / name).mkdir()
    claims = claims_of(variant)
    environ = _environment(run, variant, clock)

    def heard(line: str) -> None:
        if is_progress(line):
            run.progress.step(f"{variant.id}: {line}")

    with clock.step("build"):
        run.progress.step(f"{variant.id}: building")
        wheel = build_wheel(
            run.source,
            environ,
            out / "built",
            run.kept(variant) / "build.log",
            heard,
        )
    if claims.abi != "pure":
        with clock.step("repair"):
            run.progress.step(f"{variant.id}: auditwheel repair")
            wheel = repair(wheel, out / "repaired")
    return stamp(wheel, claims, out / "stamped")


def _environment(run: Run, variant: Variant, clock: Clock) -> dict[str, str]:
    """What setup.py is told; a native variant's toolkit is provisioned for it."""
    toolkit, release = variant.toolkit, variant.torch_release
    if toolkit is None or release is None:
        return build_environment(variant, None)
    host = _host()
    with clock.step("toolkit"):
        root = provide(toolkit, toolkit.archs, variant.platform, host, run.cache, run.progress)
        torch = torch_headers(release, run.cache, run.progress)
    places = BuildPaths(
        toolkit=str(root),
        torch=str(torch),
        build=str(run.kept(variant) / "native"),
        shared=str(run.shared(toolkit, f"{root} {host.path} {host.version}")),
        cxx=str(host.path),
    )
    return build_environment(variant, places, " ".join(run.launcher)) | {"MAX_JOBS": str(run.jobs)}


def try_out(run: Run, variant: Variant, wheel: Path, clock: Clock) -> SmokeRecord:
    """The record of the smoke tests in a clean environment."""
    run.progress.step(f"{variant.id}: smoke")
    wanted = run.matrix.smoke
    record = run.dist / "smoke" / f"{variant.id}.json"
    with clock.step("smoke"):
        return smoke(
            wheel,
            tests=run.root / wanted.tests,
            torch=wanted.torch,
            requires=wanted.requires,
            bundled=run.bundled,
            here=False,
            record=record,
            without_gpu=wanted.without_gpu,
            junit=record.with_suffix(".xml"),
            cache=run.cache,
            progress=run.progress,
        )
