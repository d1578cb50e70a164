"""Builds a wheel with this machine's own compiler, and tries a variant in a clean environment."""

import dataclasses
import functools
import shlex
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from torchwheel.image.engine import Engine
from torchwheel.matrix.variants import Variant
from torchwheel.pipeline.build_records import BuiltWheel
from torchwheel.pipeline.frontend import build_wheel
from torchwheel.pipeline.inputs import (
    NATIVE,
    BuildPaths,
    Clock,
    Run,
    build_environment,
    claims_of,
)
from torchwheel.pipeline.materials import materials_of
from torchwheel.pipeline.repair import BuildMaterials, finish_wheel
from torchwheel.smoke.smoke_record import SmokeRecord
from torchwheel.smoke.testing import smoke
from torchwheel.toolkit.provide import provide
from torchwheel_runtime.builder.extension import OBJECTS
from torchwheel_runtime.builder.ninja import read_progress
from torchwheel_runtime.builder.variables import SHARD
from torchwheel_runtime.claims import Claims
from torchwheel_runtime.errors import UsageError
from torchwheel_runtime.files import temporary_variables
from torchwheel_runtime.shards import Shard
from torchwheel_runtime.toolkit.headers import torch_headers
from torchwheel_runtime.toolkit.host import HostCompiler, host_compiler


def build_and_finish(
    build_into: Callable[[Path], Path],
    claims_of_built: Callable[[Path], Claims],
    out: Path,
    clock: Clock,
    step: Callable[[str], None],
    materials: BuildMaterials | None,
) -> Path:
    """Build, repair and stamp a wheel, whoever wrote the project; it lies below `out`.

    `out` has no `built` and `finished` yet. The claims may depend on the built wheel's libraries.
    A pure wheel has no `materials`.
    """
    built, finished = out / "built", out / "finished"
    built.mkdir()
    with clock.step("build"):
        wheel = build_into(built)
    with clock.step("repair"):
        finished.mkdir()
        claims = claims_of_built(wheel)
        if claims.abi != "pure":
            step("auditwheel repair")
        return finish_wheel(wheel, claims, finished, materials)


def container_reason(variant: Variant, engine: Engine | None = None) -> str | None:
    """Why a run cannot build a variant; None if its engine, or without one this machine, can."""
    if engine is not None:
        return None
    reasons = {
        "the aten flavour": variant.abi == "aten" and variant.part is None,
        "ROCm": variant.toolkit is not None and variant.toolkit.backend == "rocm",
        "a toolkit of packages": variant.toolkit is not None and bool(variant.toolkit.packages),
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


@functools.cache
def _host() -> HostCompiler:
    """The machine's compiler, the same for all variants of a run."""
    return host_compiler()


@dataclasses.dataclass(frozen=True)
class Host:
    """Builds a variant with this machine's compiler, and tries it in a clean environment."""

    run: Run
    variant: Variant
    place: ClassVar[str] = "host"

    @property
    def facts(self) -> Sequence[str]:
        """The facts of this machine that can change the wheel."""
        if self.variant.toolkit is None:
            return []
        host = _host()
        return [str(host.path), host.version]

    @property
    def compiler(self) -> Sequence[str]:
        """The same facts."""
        return self.facts

    def _show_progress(self, line: str) -> None:
        if step := read_progress(line):
            self.run.progress.step(*step)

    def _build_into(self, out: Path, environ: Mapping[str, str]) -> Path:
        """Build the wheel that these variables ask for into the folder `out`."""
        log = self.run.variant_folder(self.variant) / "build.log"
        return build_wheel(self.run.source, environ, out, log, self._show_progress)

    def build(self, out: Path, clock: Clock, *, tests: bool = True) -> BuiltWheel:
        """The finished wheel, below `out`; nothing tries it here, whatever `tests` says."""
        del tests
        run, variant = self.run, self.variant
        environ = _environment(run, variant, clock)
        native = variant.toolkit is not None
        wheel = build_and_finish(
            lambda folder: self._build_into(folder, environ),
            lambda _: claims_of(variant),
            out,
            clock,
            run.progress.step,
            materials_of(run, variant, str(_host().path)) if native else None,
        )
        return BuiltWheel(wheel)

    def compile_shard(self, shard: Shard, out: Path) -> Path:
        """Compile a shard of what the variants of a toolkit share; the folder of the objects."""
        environ = {**_environment(self.run, self.variant, Clock()), SHARD: str(shard)}
        self._build_into(out, environ)
        return self.run.variant_folder(self.variant) / NATIVE / OBJECTS

    def build_base(self, out: Path) -> Path:
        """The project's wheel without machine code, as its build backend makes it, in `out`."""
        pure = dataclasses.replace(self.variant, abi="pure", parts=())
        return self._build_into(out, build_environment(pure, None))

    def smoke(self, built: BuiltWheel, clock: Clock) -> SmokeRecord:
        """Run the smoke tests in a clean environment; returns their record."""
        run, variant = self.run, self.variant
        if run.trial.tests is None:
            raise UsageError(f"{variant.id}: matrix.yaml has no smoke.tests; expected their folder")
        record = run.dist / "smoke" / f"{variant.id}.json"
        with clock.step("smoke"):
            return smoke(
                built.wheel,
                run.trial,
                bundled=run.bundled,
                record=record,
                cache=run.cache,
                progress=run.progress,
                junit=record.with_suffix(".xml"),
            )


# Of the builds at work one provides and verifies a toolkit; the others find it in the cache.
_PROVIDING = threading.Lock()


def _environment(run: Run, variant: Variant, clock: Clock) -> dict[str, str]:
    """The variables that configure setup.py; provides the toolkit of a native variant."""
    toolkit, release = variant.toolkit, variant.torch_release
    if toolkit is None or release is None:
        return build_environment(variant, None)
    host = _host()
    with clock.step("toolkit"):
        # Kernels include no header of torch's, and take longest: they are not to wait for any.
        kernels = variant.part == "kernels"
        torch = run.cache / "torch" if kernels else torch_headers(release, run.cache, run.progress)
        with _PROVIDING:
            root = provide(toolkit, variant.platform, host, run.cache, run.progress)
    paths = BuildPaths(
        toolkit=str(root),
        torch=str(torch),
        build=str(run.variant_folder(variant) / NATIVE),
        shared=str(run.shared_folder(toolkit, f"{root} {host.path} {host.version}")),
        cxx=str(host.path),
        kernels=tuple(str(artifact.folder) for artifact in run.linked.get(variant.id, ())),
    )
    launcher = shlex.join(run.launcher)
    configured = build_environment(variant, paths, launcher, kernels_only=run.kernels_only)
    return {**configured, **run.server, **temporary_variables(), "MAX_JOBS": str(run.jobs)}
