"""One variant, from sources to a proven wheel in the output folder."""

import contextlib
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from torchwheel.builder import environment
from torchwheel.check.gates import passed, run_gates
from torchwheel.check.limits import Limits
from torchwheel.claims import Claims
from torchwheel.errors import TorchwheelError
from torchwheel.files import no_space_is_one_line, sha256
from torchwheel.matrix.resolve import Variant
from torchwheel.pipeline import record as records
from torchwheel.pipeline.frontend import build_wheel
from torchwheel.pipeline.record import Record
from torchwheel.pipeline.repair import repair
from torchwheel.pipeline.run import Run, claims_of, key_of
from torchwheel.pipeline.stamp import stamp
from torchwheel.smoke.run import smoke
from torchwheel.toolkit.headers import torch_headers
from torchwheel.toolkit.host import HostCompiler, host_compiler
from torchwheel.toolkit.provide import provide


class Clock:
    """Seconds per named step."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time the block."""
        begun = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = round(time.monotonic() - begun, 3)


def make(run: Run, variant: Variant) -> tuple[Record, bool]:
    """Bring `variant` up to date; returns its record and whether anything had to be done."""
    host = host_compiler() if variant.toolkit else None
    key = key_of(run, variant, host)
    done = records.finished(run.dist, variant.id, key)
    if done:
        return done, False
    clock = Clock()
    # Inside dist, so that the last rename stays on one disk.
    aside = run.dist / records.FOLDER
    with (
        no_space_is_one_line(run.dist),
        tempfile.TemporaryDirectory(prefix="making-", dir=aside) as folder,
        clock.step("total"),
    ):
        out = Path(folder)
        wheel = _build(run, variant, host, out, clock)
        tag_reason, gates = _gates(run, variant, wheel, clock)
        verdict = _smoke(run, variant, wheel, clock)
        records.forget(run.dist, variant.id)
        wheel = wheel.replace(run.dist / wheel.name)
    record = Record(
        variant=variant.id,
        key=key,
        file=wheel.name,
        sha256=sha256(wheel),
        size=wheel.stat().st_size,
        archs=claims_of(variant).archs,
        tag_reason=tag_reason,
        gates=gates,
        smoke=verdict,
        seconds=clock.seconds.pop("total"),
        steps=clock.seconds,
    )
    records.save(run.dist, record)
    return record, True


def _build(run: Run, variant: Variant, host: HostCompiler | None, out: Path, clock: Clock) -> Path:
    """The built, repaired and stamped wheel, in a folder below `out`."""
    for name in ("built", "repaired", "stamped"):
        (out / name).mkdir()
    claims = claims_of(variant)
    environ = _environment(run, variant, host, claims, clock)
    with clock.step("build"):
        run.progress.step(f"{variant.id}: building")
        wheel = build_wheel(
            run.source,
            environ,
            out / "built",
            run.kept(variant) / "build.log",
            lambda text: run.progress.step(f"{variant.id}: {text}"),
        )
    if claims.abi != "pure":
        with clock.step("repair"):
            run.progress.step(f"{variant.id}: auditwheel repair")
            wheel = repair(wheel, out / "repaired")
    return stamp(wheel, claims, out / "stamped")


def _environment(
    run: Run, variant: Variant, host: HostCompiler | None, claims: Claims, clock: Clock
) -> dict[str, str]:
    """What tells setup.py what to build; a native variant's toolkit is provisioned for it."""
    environ: dict[str, str] = {environment.ABI: claims.abi}
    if variant.toolkit is None or variant.torch_release is None or host is None:
        return environ
    with clock.step("toolkit"):
        cuda_home = provide(
            variant.toolkit, claims.archs, variant.platform, host, run.cache, run.progress
        )
        include = torch_headers(variant.torch_release, run.cache, run.progress)
    return environ | {
        environment.NAME: variant.id,
        environment.CUDA_HOME: str(cuda_home),
        environment.TOOLKIT: variant.toolkit.version,
        environment.ARCH_LIST: ";".join(claims.archs),
        environment.CXX: str(host.path),
        environment.TORCH_INCLUDE: str(include),
        environment.TORCH_FLOOR: variant.torch_release,
        environment.LAUNCHER: " ".join(run.launcher),
        environment.BUILD_FOLDER: str(run.kept(variant) / "native"),
    }


def _gates(run: Run, variant: Variant, wheel: Path, clock: Clock) -> tuple[str, int]:
    """Why the tag is what it is, and how many gates held; raises if one did not.

    A wheel that fails is kept where nothing installs it from.
    """
    run.progress.step(f"{variant.id}: gates")
    with clock.step("gates"):
        results = run_gates(wheel, Limits(max_size_mib=run.matrix.gates.max_size_mib))
    if not passed(results):
        rejected = run.dist / "rejected" / f"{wheel.name}.rejected"
        rejected.parent.mkdir(exist_ok=True)
        shutil.copyfile(wheel, rejected)
        named = "; ".join(
            f"gate {result.name}: {result.says}" for result in results if not result.ok
        )
        raise TorchwheelError(f"{named} (the wheel is kept as {rejected})")
    reason = next(result.says for result in results if result.name == "platform-tag")
    return reason, len(results)


def _smoke(run: Run, variant: Variant, wheel: Path, clock: Clock) -> str:
    """The verdict of the smoke tests in a clean environment; raises if it is not a good one."""
    run.progress.step(f"{variant.id}: smoke")
    wanted = run.matrix.smoke
    record = run.dist / "smoke" / f"{variant.id}.json"
    with clock.step("smoke"):
        found = smoke(
            wheel,
            tests=run.root / wanted.tests,
            torch=wanted.torch,
            requires=wanted.requires,
            here=False,
            record=record,
            junit=record.with_suffix(".xml"),
            cache=run.cache,
            progress=run.progress,
        )
    if not found.ok:
        raise TorchwheelError(f"smoke: {found.why}; see {record.with_suffix('.xml')}")
    return found.verdict
