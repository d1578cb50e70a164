"""`torchwheel build`: from an sdist to a proven wheel and its record."""

import dataclasses
import json
import shlex
import shutil
from collections.abc import Collection, Sequence
from pathlib import Path

from torchwheel.check.libraries import stable_since
from torchwheel.compilers.cluster import ClusterUse, check_cluster, cluster_use
from torchwheel.compilers.compile_steps import StepRecord, steps_of_shard
from torchwheel.compilers.compiler_cache import CacheUse
from torchwheel.findings import CheckResult
from torchwheel.inspect.build_script import BuildScript
from torchwheel.inspect.wheel import read_wheel
from torchwheel.pipeline.build_records import BuildRecord, record_wheel, report_table
from torchwheel.pipeline.own_build import libraries_of
from torchwheel.pipeline.variant import check_gates, keep_rejected
from torchwheel.sdist.confined import ConfinedBuild, confine
from torchwheel.sdist.request import SdistRequest
from torchwheel.sdist.shard_lists import (
    FOLDER,
    BuildIdentity,
    ShardList,
    check_identity,
    read_lists,
    write_list,
)
from torchwheel.smoke.smoke_record import ImportRecord, MachineRecord
from torchwheel_runtime.arch.lists import arch_list
from torchwheel_runtime.arch.releases import torch_releases
from torchwheel_runtime.console import Progress
from torchwheel_runtime.files import sha256, write_atomically, write_text
from torchwheel_runtime.inspect.elf import Library
from torchwheel_runtime.shards import Shard
from torchwheel_runtime.text import table_rows
from torchwheel_runtime.toolkit.host import host_compiler
from torchwheel_runtime.versions import version_numbers

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


def closing_text(record: SdistRecord, dist: Path) -> str:
    """The table, and the command that installs the wheel."""
    table = report_table([record.wheel], [record.wheel.variant])
    if use := record.cache:
        table += f"\n  cache {use.hits} objects were there, {use.misses} were compiled"
    if record.cluster:
        table += f"\n  cluster {record.cluster}"
    # pip alone may replace torch, to meet a requirement of the wheel's.
    command = shlex.join(["torchwheel", "install", str(dist / record.wheel.file)])
    return f"{table}\n\nTo install it beside its torch, which stays as it is:\n  {command}"


def build_sdist(
    request: SdistRequest, cache: Path, progress: Progress, shards: Path | None = None
) -> SdistRecord:
    """Build, repair, stamp, check and import a wheel, then put it and its record into `dist`.

    `shards` is a folder with the lists of all shards of this build, whose objects are linked.
    """
    lists = read_lists(shards) if shards else ()
    if request.on:
        check_cluster(request.on, request.launcher, host_compiler().path)
    # With a named cache its use is counted.
    with confine(request, cache, progress, "link" if request.cache else "") as confined:
        if lists:
            check_identity(lists, identity_of(confined))
        built, clock = confined.build(lists), confined.clock
        wheel, cluster = built.wheel, None
        if request.on:
            cluster = cluster_use(request.on, request.launcher, confined.environ)
        with clock.step("proof"), keep_rejected(wheel, request.dist):
            gates = check_gates(wheel, request.limits, confined.source)
            facts = read_wheel(wheel)
            tried = confined.smoke(facts)
        if offer := stable_offer(libraries_of(wheel), confined.script):
            progress.say(f"{wheel.name}: {offer}")
        variant, host = confined.variant, confined.host
        record = SdistRecord(
            source=request.name,
            source_sha256=sha256(request.source) if request.source.is_file() else None,
            torch=confined.torch.version,
            toolkit=variant.toolkit.version if variant.toolkit else None,
            compiler=f"{host.family} {host.version}",
            jobs=confined.jobs,
            wheel=record_wheel(variant, request.key(), wheel, gates, "imported", clock),
            gates=gates,
            machine=tried.machine,
            imported=tried.imported,
            borrowed=facts.claims.borrowed if facts.claims else (),
            sandbox="bubblewrap" if confined.sandbox else None,
            cache=built.cache,
            cluster=cluster,
        )
        text = json.dumps({"schema": SCHEMA, **dataclasses.asdict(record)}, indent=1)
        write_text(request.dist / f"{wheel.name}.json", text + "\n")
        with write_atomically(request.dist / wheel.name) as temporary:
            shutil.copyfile(wheel, temporary)
    return record


def stable_offer(libraries: Sequence[Library], script: BuildScript | None) -> str:
    """That one wheel can serve many torches, as its libraries need the stable ABI alone; or ""."""
    since = stable_since(libraries)
    if since is None or script is None or script.stable is None:
        return ""
    since = max(since, script.stable.name, key=version_numbers)
    return (
        f"its libraries keep to torch's stable ABI: one wheel can serve torch>={since}; "
        f'`torchwheel adopt` writes a matrix for it (ordinary: {{stable: "{since}"}})'
    )


def identity_of(confined: ConfinedBuild) -> BuildIdentity:
    """What all shards of a build have in common."""
    toolkit = confined.variant.toolkit
    archs = arch_list(toolkit.archs) if toolkit else ""
    source, torch = confined.request.name, confined.torch.version
    return BuildIdentity(source, confined.variant.id, torch, archs)


def plan_build(request: SdistRequest, count: int, cache: Path, progress: Progress) -> str:
    """Run setup.py without compiling anything; returns the steps of each of `count` shards."""
    with confine(request, cache, progress, "plan") as confined:
        steps = confined.divide()
        known = torch_releases().get(confined.torch.minor)
        return plan_text(confined.variant.id, steps, known.pythons if known else (), count)


def compile_shard(request: SdistRequest, shard: Shard, cache: Path, progress: Progress) -> str:
    """Compile a shard into the compiler cache, and list its objects; returns a line about them."""
    with confine(request, cache, progress, "shard", shard) as confined:
        records = confined.divide()
        listed = ShardList(
            build=identity_of(confined),
            shard=str(shard),
            steps=tuple(record.name for record in records),
            objects={record.name: record.sha256 for record in records if record.sha256},
            hits=confined.hits(),
        )
    file = write_list(listed, request.dist / FOLDER)
    return (
        f"{file}: shard {listed.shard}: {len(listed.objects)} of {len(listed.steps)} objects in "
        f"the cache, {listed.hits} of them were there"
    )


def plan_text(
    variant: str, steps: Sequence[StepRecord], pythons: Collection[str], count: int
) -> str:
    """The steps of each of `count` shards, and what several Pythons share.

    Args:
        variant: what the wheel is built for.
        steps: all steps, in the order in which shards take turns.
        pythons: the Pythons that its torch is published for.
        count: how many shards there are.
    """
    rows = [("shard", "python", "step")]
    for number in range(1, count + 1):
        shard = Shard(number, count)
        rows += [
            (str(shard), "Python.h" if step.python else "any", step.name)
            for step in steps_of_shard(steps, shard)
        ]
    each, served = sum(bool(step.python) for step in steps), len(pythons)
    lines = table_rows("< < <", rows)
    lines += [
        "",
        f"{variant}: {len(steps)} steps in {count} shards, {len(steps) - each} without Python.h",
    ]
    if served:
        objects = len(steps) - each + served * each
        lines.append(
            f"For the {served} Pythons of this torch: {objects} objects, "
            f"{served * len(steps)} if none were shared"
        )
    return "\n".join(lines)
