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
from torchwheel.sdist.big_build import DividedSteps, identity_of
from torchwheel.sdist.build_setup import BuildSetup, RequirementsInstaller
from torchwheel.sdist.confined import ConfinedBuild, confine
from torchwheel.sdist.request import SdistRequest, check_request, hold_build_folder
from torchwheel.smoke import environment
from torchwheel.smoke.record import ImportRecord, MachineRecord
from torchwheel.smoke.testing import import_names, run_probe
from torchwheel.steps.cluster import ClusterUse, check_cluster, cluster_use
from torchwheel.steps.compiler_cache import CacheUse
from torchwheel.steps.own_ninja import write_compiled
from torchwheel.steps.shard_lists import (
    ShardList,
    check_identity,
    check_steps,
    objects_of,
    read_lists,
)
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
            setup = confined.setup
            if lists:
                check_identity(lists, identity_of(confined))
            wheel, use = _build(confined, lists, progress, clock)
            cluster = None
            if request.on:
                cluster = cluster_use(request.on, request.launcher, setup.environ)
            progress.step(f"gates and import of {wheel.name}")
            with clock.step("proof"), keep_rejected(wheel, request.dist):
                gates = check_gates(wheel, limits_of(request))
                facts = read_wheel(wheel)
                machine, imported = _import_installed(confined, facts)
        key = request.key()
        record = SdistRecord(
            source=request.source.name,
            source_sha256=sha256(request.source) if request.source.is_file() else None,
            torch=setup.torch.built.version,
            toolkit=setup.variant.toolkit.version if setup.variant.toolkit else None,
            compiler=f"{setup.host.family} {setup.host.version}",
            jobs=setup.jobs,
            wheel=record_wheel(setup.variant, key, wheel, gates, "imported", clock.seconds),
            gates=gates,
            machine=machine,
            imported=imported,
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
    confined: ConfinedBuild, lists: Sequence[ShardList], progress: Progress, clock: Clock
) -> tuple[Path, CacheUse | None]:
    """The finished wheel, below the build's folder, and how often a named cache had an object."""
    folder, setup = confined.folder, confined.setup
    if confined.request.cache is None:
        with confined.project(progress) as project:
            return build_and_finish(project, lambda b: _claims(b, setup), folder, clock), None
    steps = DividedSteps(confined, "link")

    def claims_of_built(wheel: Path) -> Claims:
        if lists:
            check_steps(lists, steps.records())
        return _claims(wheel, setup)

    with steps.project(progress) as project:
        if lists:
            write_compiled(objects_of(lists), steps.folder)
        wheel = build_and_finish(project, claims_of_built, folder, clock)
    return wheel, steps.cache_use()


def _claims(wheel: Path, setup: BuildSetup) -> Claims:
    """The claims of a built wheel; it borrows the libraries that this torch has loaded."""
    nothing = ", so it serves every torch: nothing is to be built"
    return borrowing_claims(wheel, claims_of(setup.variant), setup.torch.loaded, nothing)


def _import_installed(
    confined: ConfinedBuild, wheel: Wheel
) -> tuple[MachineRecord, tuple[ImportRecord, ...]]:
    """Import a wheel in a clean environment over its torch; an import that fails is an error."""
    setup, folder = confined.setup, confined.folder / "proof"
    cwd = folder / "imported" / "cwd"
    cwd.mkdir(parents=True)
    env = environment.layered_environment(setup.base, folder / "clean")
    # Its other requirements come from the index; torch stays.
    RequirementsInstaller(env, setup.torch, folder).install([wheel.path], wheel.path.name)
    env = dataclasses.replace(env, python=confined.python(env, [cwd.parent]))
    facts, _ = run_probe(env, confined.request.imports or import_names(wheel), cwd)
    for package in facts.imported:
        if package.error:
            raise TorchwheelError(f"smoke: import {package.name}: {package.error}")
    return facts.machine, facts.imported
