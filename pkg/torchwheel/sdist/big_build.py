"""A build in parts: its plan, one shard of its steps, and the lists of what shards compiled.

A compiler cache is a place that others write to, and sccache gives out what lies there. So each
shard writes the hashes of its objects into a list, which travels as an artifact of its job, and the
job that links compares what the cache gives it.
"""

import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import ninja

from torchwheel.pipeline.inputs import Clock
from torchwheel.sdist.confined import ConfinedBuild, confine
from torchwheel.sdist.request import SdistRequest, check_request, hold_build_folder
from torchwheel.steps import own_ninja
from torchwheel.steps.graph import ExpectedObject, StepRecord, steps_of_shard
from torchwheel.steps.own_ninja import Work, read_cache_use, read_records
from torchwheel_runtime.arch.lists import arch_list
from torchwheel_runtime.arch.releases import torch_releases
from torchwheel_runtime.console import Progress
from torchwheel_runtime.errors import MalformedError, TorchwheelError
from torchwheel_runtime.files import write_text
from torchwheel_runtime.json_files import read_json
from torchwheel_runtime.shards import Shard, parse_shard
from torchwheel_runtime.text import join_names, table_rows
from torchwheel_runtime.toolkit.toolkit_home import write_script

SCHEMA = 1
FOLDER = "shards"
"""Of the output folder: for the lists of what shards compiled."""


@dataclasses.dataclass(frozen=True)
class BuildIdentity:
    """What all shards of a build have in common.

    Attributes:
        source: file or folder name of the project.
        variant: what the wheel is built for.
        torch: the torch that it is compiled with.
        archs: the arch list; empty without CUDA.
    """

    source: str
    variant: str
    torch: str
    archs: str


@dataclasses.dataclass(frozen=True)
class ShardList:
    """What a shard compiled.

    Attributes:
        build: the build.
        shard: which of its shards it is, e.g. "2/3".
        steps: the names of all steps of the build.
        objects: the sha256 of each object of this shard, by the name of its step.
        hits: how many of them the cache had already.
    """

    build: BuildIdentity
    shard: str
    steps: tuple[str, ...]
    objects: Mapping[str, str]
    hits: int

    @property
    def number(self) -> Shard:
        """The shard."""
        return parse_shard(self.shard, "shard")


@dataclasses.dataclass(frozen=True)
class BuildPlan:
    """The steps of a build.

    Attributes:
        variant: what the wheel is built for.
        steps: all steps, in the order in which shards take turns.
        pythons: the Pythons that its torch is published for.
    """

    variant: str
    steps: tuple[StepRecord, ...]
    pythons: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class DividedSteps:
    """The steps of a build, while the project's setup.py runs.

    Attributes:
        confined: the build.
        work: what is done with the steps.
        shard: the part that is compiled.
    """

    confined: ConfinedBuild
    work: Work
    shard: Shard = dataclasses.field(default_factory=Shard)

    @property
    def folder(self) -> Path:
        """Where the records of the steps are written."""
        return self.confined.folder / "steps"

    def _replace_ninja(self, python: str) -> None:
        """Put our own ninja into the environment of the build, whose Python is `python`."""
        command = own_ninja.command(
            self.work,
            self.folder,
            Path(ninja.BIN_DIR, "ninja"),
            self.confined.host.path,
            self.confined.request.launcher,
            self.shard,
        )
        # Before PATH comes the folder of the Python that builds; the project may have installed a
        # ninja there, which may be a link into a cache.
        program = self.confined.env.python.with_name("ninja")
        program.unlink(missing_ok=True)
        write_script(program, command)
        own_ninja.check_starts(program, python)

    @contextlib.contextmanager
    def project(self) -> Iterator[Callable[[Path], Path]]:
        """What builds the project's wheel, whose setup.py calls our ninja; for the block."""
        self.folder.mkdir()
        with self.confined.project([self.folder], self._replace_ninja) as build_into:
            yield build_into

    def run(self) -> None:
        """Run setup.py; the wheel that comes out has empty objects in it, and is thrown away."""
        built = self.confined.folder / "built"
        built.mkdir()
        with self.project() as build_into:
            build_into(built)

    def records(self) -> tuple[StepRecord, ...]:
        """The steps of the build.

        Raises:
            TorchwheelError: it has none.
        """
        found = tuple(read_records(self.folder))
        if not found:
            raise TorchwheelError(
                f"{self.confined.request.source.name}: expected compile steps in a ninja graph of "
                "torch's BuildExtension, found none; build it as a whole"
            )
        return found


@contextlib.contextmanager
def _confined(request: SdistRequest, cache: Path, progress: Progress) -> Iterator[ConfinedBuild]:
    check_request(request)
    with (
        hold_build_folder(request.build_folder(cache), progress) as folder,
        confine(request, folder, cache, progress, Clock()) as confined,
    ):
        yield confined


def plan_build(request: SdistRequest, cache: Path, progress: Progress) -> BuildPlan:
    """Run setup.py without compiling anything; returns the steps."""
    with _confined(request, cache, progress) as confined:
        steps = DividedSteps(confined, "plan")
        steps.run()
        known = torch_releases().get(confined.torch.minor)
        return BuildPlan(
            confined.variant.id, steps.records(), tuple(known.pythons) if known else ()
        )


def compile_shard(
    request: SdistRequest, shard: Shard, cache: Path, progress: Progress
) -> tuple[Path, ShardList]:
    """Compile a shard into the compiler cache; returns the list of its objects, and its file."""
    with _confined(request, cache, progress) as confined:
        steps = DividedSteps(confined, "shard", shard)
        steps.run()
        records = steps.records()
        listed = ShardList(
            build=identity_of(confined),
            shard=str(shard),
            steps=tuple(record.name for record in records),
            objects={record.name: record.sha256 for record in records if record.sha256},
            hits=read_cache_use(steps.folder).hits,
        )
    return write_list(listed, request.dist / FOLDER), listed


def identity_of(confined: ConfinedBuild) -> BuildIdentity:
    """What all shards of a build have in common."""
    toolkit = confined.variant.toolkit
    archs = arch_list(toolkit.archs) if toolkit else ""
    source, torch = confined.request.source.name, confined.torch.version
    return BuildIdentity(source, confined.variant.id, torch, archs)


def plan_text(plan: BuildPlan, count: int) -> str:
    """The steps of each of `count` shards, and what several Pythons share."""
    steps, with_python = plan.steps, [step for step in plan.steps if step.python]
    rows = [("shard", "python", "step")]
    for number in range(1, count + 1):
        shard = Shard(number, count)
        rows += [
            (str(shard), "Python.h" if step.python else "any", step.name)
            for step in steps_of_shard(steps, shard)
        ]
    each, pythons = len(with_python), len(plan.pythons)
    lines = table_rows("< < <", rows)
    lines += [
        "",
        f"{plan.variant}: {len(steps)} steps in {count} shards, "
        f"{len(steps) - each} without Python.h",
    ]
    if pythons:
        objects = len(steps) - each + pythons * each
        lines.append(
            f"For the {pythons} Pythons of this torch: {objects} objects, "
            f"{pythons * len(steps)} if none were shared"
        )
    return "\n".join(lines)


def shard_text(file: Path, listed: ShardList) -> str:
    """One line on what a shard compiled."""
    return (
        f"{file}: shard {listed.shard}: {len(listed.objects)} of {len(listed.steps)} objects in "
        f"the cache, {listed.hits} of them were there"
    )


def write_list(listed: ShardList, folder: Path) -> Path:
    """Write a list into `folder`; returns its file."""
    name = f"{listed.build.source}-{listed.build.variant}{listed.number.suffix}.json"
    text = json.dumps({"schema": SCHEMA, **dataclasses.asdict(listed)}, indent=1)
    write_text(folder / name, text + "\n")
    return folder / name


def read_lists(folder: Path) -> tuple[ShardList, ...]:
    """The lists of all shards of one build, in their order.

    Raises:
        TorchwheelError: a shard has no list, or the lists are not of one build.
    """
    files = sorted(folder.glob("*.json"))
    if not files:
        raise TorchwheelError(f"{folder}: expected the lists that --shard writes, found none")
    lists = {file: _read(file) for file in files}
    first = lists[files[0]]
    for file, one in lists.items():
        if (one.build, one.steps, one.number.count) != (
            first.build,
            first.steps,
            first.number.count,
        ):
            raise TorchwheelError(
                f"{file.name}: expected a shard of the same build as {files[0].name}, found "
                f"{one.shard} of {_describe(one)}, not of {_describe(first)}; "
                f"give each build a folder of its own, and all its shards the same options"
            )
    by_number = {one.number.number: one for one in lists.values()}
    count = first.number.count
    if lost := [number for number in range(1, count + 1) if number not in by_number]:
        names = join_names(f"{number}/{count}" for number in lost)
        raise TorchwheelError(
            f"{folder}: expected the lists of {count} shards, found {len(by_number)}: {names} is "
            f"lost; run `torchwheel build … --shard {lost[0]}/{count}` again"
        )
    return tuple(by_number[number] for number in range(1, count + 1))


def _read(file: Path) -> ShardList:
    do = "compile the shard again"
    found = read_json(file, ShardList, do=do, schema=SCHEMA)
    own = set(found.objects) - set(found.steps)
    if own:
        raise MalformedError(str(file), f"objects: {min(own)} is none of the steps", do)
    return found


def _describe(listed: ShardList) -> str:
    build, steps = listed.build, len(listed.steps)
    return f"{build.source} for {build.variant} ({build.archs or 'no archs'}, {steps} steps)"


def check_identity(lists: Sequence[ShardList], build: BuildIdentity) -> None:
    """Raise unless the lists are of this build."""
    found = lists[0].build
    if found != build:
        names = [field.name for field in dataclasses.fields(build)]
        name = next(name for name in names if getattr(found, name) != getattr(build, name))
        raise TorchwheelError(
            f"--from-shards: expected shards of {name} {getattr(build, name)}, found those of "
            f"{getattr(found, name)}; give all jobs the same options"
        )


def objects_of(lists: Sequence[ShardList]) -> dict[str, ExpectedObject]:
    """What the shards compiled, by the names of the steps."""
    return {
        name: ExpectedObject(digest, f"shard {one.shard}")
        for one in lists
        for name, digest in one.objects.items()
    }


def check_steps(lists: Sequence[ShardList], records: Sequence[StepRecord]) -> None:
    """Raise unless the steps that were linked are those of the shards."""
    steps, expected = tuple(record.name for record in records), lists[0].steps
    if steps != expected:
        differing = sorted(set(steps) ^ set(expected)) or ["their order"]
        raise TorchwheelError(
            f"--from-shards: expected the {len(expected)} steps of the shards, found "
            f"{len(steps)}; they differ in {differing[0]}; compile the shards of these sources"
        )
