"""`torchwheel build`: from an sdist to a proven wheel and its record."""

import dataclasses
import json
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path

from torchwheel.check.facts import Limits
from torchwheel.findings import CheckResult
from torchwheel.inspect.wheel import Wheel, read_wheel
from torchwheel.pipeline.inputs import Clock, claims_of
from torchwheel.pipeline.on_host import build_and_finish
from torchwheel.pipeline.own_build import borrowing_claims
from torchwheel.pipeline.records import BuildRecord, record_wheel, report_table
from torchwheel.pipeline.variant import check_gates, keep_rejected
from torchwheel.sdist.big_build import (
    DividedSteps,
    ShardList,
    check_identity,
    check_steps,
    identity_of,
    objects_of,
    read_lists,
)
from torchwheel.sdist.build_setup import install_beside_torch
from torchwheel.sdist.confined import ConfinedBuild, confine
from torchwheel.sdist.request import SdistRequest, check_request, hold_build_folder
from torchwheel.smoke import environment
from torchwheel.smoke.record import ImportRecord, MachineRecord
from torchwheel.smoke.results import RunFacts
from torchwheel.smoke.testing import import_names, run_probe
from torchwheel.steps.cluster import ClusterUse, check_cluster, cluster_use
from torchwheel.steps.compiler_cache import CacheUse
from torchwheel.steps.own_ninja import read_cache_use, write_compiled
from torchwheel_runtime.claims import Claims
from torchwheel_runtime.console import Progress
from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.files import sha256, write_atomically, write_text
from torchwheel_runtime.toolkit.host import host_compiler

SCHEMA = 1


@dataclasses.dataclass(frozen=True)
class SdistRecord:
    """One finished wheel.

    Attributes:
        source: file or folder name of the project.
        source_sha256: of an archive.
        torch: the torch it was compiled with.
        toolkit: the CUDA release that compiled it; None without CUDA.
        compiler: the C++ compiler.
        jobs: compilers that were allowed side by side.
        wheel: the record that `torchwheel wheels` writes of its own wheels too.
        gates: the result of each gate.
        machine: where it was imported.
        imported: what was imported there.
        borrowed: libraries that it needs and torch loads.
        sandbox: what held the project's code; None if it ran with the user's rights.
        cache: how often the compiler cache of --cache had an object.
        cluster: what the cluster of --on did.
    """

    source: str
    source_sha256: str | None
    torch: str
    toolkit: str | None
    compiler: str
    jobs: int
    wheel: BuildRecord
    gates: tuple[CheckResult, ...]
    machine: MachineRecord
    imported: tuple[ImportRecord, ...]
    borrowed: tuple[str, ...]
    sandbox: str | None
    cache: CacheUse | None
    cluster: ClusterUse | None = None


def dump_record(record: SdistRecord) -> str:
    """JSON in a fixed order."""
    return json.dumps({"schema": SCHEMA, **dataclasses.asdict(record)}, indent=1) + "\n"


def closing_text(record: SdistRecord, dist: Path) -> str:
    """The table, and the command that installs the wheel."""
    table = report_table([record.wheel], [record.wheel.variant])
    if use := record.cache:
        table += f"\n  cache {use.hits} objects were there, {use.misses} were compiled"
    if record.cluster:
        table += f"\n  cluster {record.cluster}"
    command = shlex.join(["pip", "install", str(dist / record.wheel.file)])
    return f"{table}\n\nTo install:\n  {command}"


def build_sdist(
    request: SdistRequest, cache: Path, progress: Progress, shards: Path | None = None
) -> SdistRecord:
    """Build, repair, stamp, check and import a wheel, then put it and its record into `dist`.

    `shards` is a folder with the lists of all shards of this build, whose objects are linked.
    """
    check_request(request)
    lists = read_lists(shards) if shards else ()
    if request.on:
        check_cluster(request.on, request.launcher, host_compiler().path)
    clock = Clock()
    with hold_build_folder(request.build_folder(cache), progress) as folder:
        with (
            clock.step("total"),
            confine(request, folder, cache, progress, clock) as confined,
        ):
            if lists:
                check_identity(lists, identity_of(confined))
            wheel, use = _build(confined, lists, clock)
            cluster = None
            if request.on:
                cluster = cluster_use(request.on, request.launcher, confined.environ)
            progress.step(f"gates and import of {wheel.name}")
            with clock.step("proof"), keep_rejected(wheel, request.dist):
                gates = check_gates(wheel, limits_of(request))
                facts = read_wheel(wheel)
                tried = _import_installed(confined, facts)
        variant, host = confined.variant, confined.host
        record = SdistRecord(
            source=request.source.name,
            source_sha256=sha256(request.source) if request.source.is_file() else None,
            torch=confined.torch.version,
            toolkit=variant.toolkit.version if variant.toolkit else None,
            compiler=f"{host.family} {host.version}",
            jobs=confined.jobs,
            wheel=record_wheel(variant, request.key(), wheel, gates, "imported", clock.seconds),
            gates=gates,
            machine=tried.machine,
            imported=tried.imported,
            borrowed=facts.claims.borrowed if facts.claims else (),
            sandbox="bubblewrap" if confined.sandbox else None,
            cache=use,
            cluster=cluster,
        )
        write_text(request.dist / f"{wheel.name}.json", dump_record(record))
        with write_atomically(request.dist / wheel.name) as temporary:
            shutil.copyfile(wheel, temporary)
    return record


def limits_of(request: SdistRequest) -> Limits:
    """The limits of the gates for a call."""
    return Limits(request.max_size_mib, allowed=request.allowed)


def _build(
    confined: ConfinedBuild, lists: Sequence[ShardList], clock: Clock
) -> tuple[Path, CacheUse | None]:
    """The finished wheel, below the build's folder, and how often a named cache had an object."""
    steps = DividedSteps(confined, "link") if confined.request.cache else None

    def claims_of_built(wheel: Path) -> Claims:
        if steps and lists:
            check_steps(lists, steps.records())
        nothing = ", so it serves every torch: nothing is to be built"
        claims = claims_of(confined.variant)
        # It borrows the libraries that this torch has loaded.
        return borrowing_claims(wheel, claims, confined.torch.loaded, nothing)

    with (steps or confined).project() as build_into:
        if steps and lists:
            write_compiled(objects_of(lists), steps.folder)
        wheel = build_and_finish(
            build_into, claims_of_built, confined.folder, clock, confined.progress.step
        )
    return wheel, read_cache_use(steps.folder) if steps else None


def _import_installed(confined: ConfinedBuild, wheel: Wheel) -> RunFacts:
    """Import a wheel in a clean environment over its torch; an import that fails is an error."""
    folder = confined.folder / "proof"
    cwd = folder / "imported" / "cwd"
    cwd.mkdir(parents=True)
    env = environment.layered_environment(confined.base, folder / "clean")
    # Its other requirements come from the index; torch stays.
    install_beside_torch(env, confined.torch, folder, [wheel.path], wheel.path.name)
    env = dataclasses.replace(env, python=confined.python(env, [cwd.parent]))
    facts, _ = run_probe(env, confined.request.imports or import_names(wheel), cwd)
    for package in facts.imported:
        if package.error:
            raise TorchwheelError(f"smoke: import {package.name}: {package.error}")
    return facts
