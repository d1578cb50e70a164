"""A build in parts: its plan, one shard of its steps, and the `ninja` that divides them."""

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path

import ninja

from torchwheel.pipeline.inputs import Clock
from torchwheel.pipeline.on_host import HostBuild
from torchwheel.sdist.confined import ConfinedBuild, confine
from torchwheel.sdist.request import SdistRequest, check_request, hold_build_folder
from torchwheel.steps import own_ninja
from torchwheel.steps.compiler_cache import CacheUse
from torchwheel.steps.graph import StepRecord, steps_of_shard
from torchwheel.steps.own_ninja import Work, read_cache_use, read_records
from torchwheel.steps.shard_lists import FOLDER, BuildIdentity, ShardList, write_list
from torchwheel_runtime.arch.lists import arch_list
from torchwheel_runtime.arch.releases import torch_releases
from torchwheel_runtime.console import Progress
from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.shards import Shard
from torchwheel_runtime.text import table_rows
from torchwheel_runtime.toolkit.toolkit_home import write_script


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
        setup, request = self.confined.setup, self.confined.request
        command = own_ninja.command(
            self.work,
            self.folder,
            Path(ninja.BIN_DIR, "ninja"),
            setup.host.path,
            request.launcher,
            self.shard,
        )
        # Before PATH comes the folder of the Python that builds; the project may have installed a
        # ninja there, which may be a link into a cache.
        program = setup.env.python.with_name("ninja")
        program.unlink(missing_ok=True)
        write_script(program, command)
        own_ninja.check_starts(program, python)

    @contextlib.contextmanager
    def project(self, progress: Progress) -> Iterator[HostBuild]:
        """The project, whose setup.py calls our ninja; for the block."""
        self.folder.mkdir()
        with self.confined.project(progress, [self.folder], self._replace_ninja) as project:
            yield project

    def run(self, progress: Progress) -> None:
        """Run setup.py; the wheel that comes out has empty objects in it, and is thrown away."""
        built = self.confined.folder / "built"
        built.mkdir()
        with self.project(progress) as project:
            project.build_into(built)

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

    def cache_use(self) -> CacheUse:
        """How often the compiler cache had an object."""
        return read_cache_use(self.folder)


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
        steps.run(progress)
        setup = confined.setup
        known = torch_releases().get(setup.torch.built.minor)
        return BuildPlan(setup.variant.id, steps.records(), tuple(known.pythons) if known else ())


def compile_shard(
    request: SdistRequest, shard: Shard, cache: Path, progress: Progress
) -> tuple[Path, ShardList]:
    """Compile a shard into the compiler cache; returns the list of its objects, and its file."""
    with _confined(request, cache, progress) as confined:
        steps = DividedSteps(confined, "shard", shard)
        steps.run(progress)
        records = steps.records()
        listed = ShardList(
            build=identity_of(confined),
            shard=str(shard),
            steps=tuple(record.name for record in records),
            objects={record.name: record.sha256 for record in records if record.sha256},
            hits=steps.cache_use().hits,
        )
    return write_list(listed, request.dist / FOLDER), listed


def identity_of(confined: ConfinedBuild) -> BuildIdentity:
    """What all shards of a build have in common."""
    variant, torch = confined.setup.variant, confined.setup.torch.built
    archs = arch_list(variant.toolkit.archs) if variant.toolkit else ""
    return BuildIdentity(confined.request.source.name, variant.id, torch.version, archs)


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
