"""The executor of a build: this machine's compiler, or a container of the variant's image."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from torchwheel.image.build import ensure_image
from torchwheel.image.recipes import image_of
from torchwheel.image.registry import registry_of
from torchwheel.matrix.variants import Variant
from torchwheel.pipeline.in_container import Container
from torchwheel.pipeline.inputs import Clock, Run
from torchwheel.pipeline.on_host import Host
from torchwheel.pipeline.records import BuiltWheel
from torchwheel.smoke.record import SmokeRecord
from torchwheel_runtime.shards import Shard


class Executor(Protocol):
    """Builds a variant of a run, and tries its wheel."""

    @property
    def place(self) -> str:
        """Where it builds: the reference of an image, or "host"."""

    @property
    def facts(self) -> Sequence[str]:
        """All that can change the wheel, beside the inputs of the variant."""

    def build(self, out: Path, clock: Clock, *, tests: bool = True) -> BuiltWheel:
        """The finished wheel, below `out`. Without `tests` no container tries it."""

    def smoke(self, built: BuiltWheel, clock: Clock) -> SmokeRecord | None:
        """The record of its smoke tests, which are run now or were run by the build.

        None if it is for another machine.
        """


class Compiler(Executor, Protocol):
    """An executor that compiles; that of a universal wheel has one for each part."""

    @property
    def compiler(self) -> Sequence[str]:
        """What names its compiler: facts of the host's, or of the image."""

    def compile_shard(self, shard: Shard, out: Path) -> Path:
        """Compile a shard of what the variants of a toolkit share; the folder of the objects.

        Of an ordinary project it is a shard of the steps of one variant. `out` is an empty folder,
        for files that are not needed afterwards.
        """


def executor_of(run: Run, variant: Variant) -> Compiler:
    """A container for native code, if the run has an engine, else the host; makes the image."""
    if run.engine is None or variant.toolkit is None:
        return Host(run, variant)
    image, registry = image_of(run.matrix, variant, run.root), registry_of(run.matrix, run.root)
    built = ensure_image(run.engine, image, run.cache, run.progress, registry)
    return Container(run, variant, run.engine, built)
