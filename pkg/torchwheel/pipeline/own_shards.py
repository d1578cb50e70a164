"""The objects of an ordinary project's shards: kept by the jobs that compile, taken by the linker.

The `ninja` of a divided build (steps/own_ninja.py) runs in the container and leaves its records and
objects in the variant's folder. An artifact of `torchwheel kernels` carries them.
"""

import shutil
from collections.abc import Iterable
from pathlib import Path

from torchwheel.builder.objects import MANIFEST, CompiledObject, object_list_text
from torchwheel.errors import TorchwheelError
from torchwheel.files import write_text
from torchwheel.image.engine import Engine
from torchwheel.pipeline.inside import DIVIDED
from torchwheel.pipeline.kernel_artifacts import KernelArtifact
from torchwheel.steps.graph import ExpectedObject
from torchwheel.steps.own_ninja import read_records, write_compiled

_GROUP = "steps"


def empty_steps(folder: Path, engine: Engine) -> Path:
    """Make the empty folder of the records of a container's build; returns it."""
    steps = folder / DIVIDED
    shutil.rmtree(steps, ignore_errors=True)
    steps.mkdir()
    engine.give(steps)
    return steps


def compiled_objects(project: str, steps: Path) -> Path:
    """List the objects that a shard compiled, beside them; returns their folder.

    Raises:
        TorchwheelError: the build has no steps that can be divided.
    """
    records = read_records(steps)
    if not records:
        raise TorchwheelError(
            f"{project}: expected compile steps in a ninja graph of torch's BuildExtension, found "
            "none; take build.shards out of matrix.yaml"
        )
    objects = (
        CompiledObject(_GROUP, record.name, record.command or "", record.sha256)
        for record in records
        if record.sha256
    )
    write_text(steps / MANIFEST, object_list_text(objects))
    return steps


def carry(artifacts: Iterable[KernelArtifact], inside: str, steps: Path) -> None:
    """Tell the `ninja` of a build which objects other jobs compiled.

    Args:
        artifacts: the verified artifacts of all shards.
        inside: the folder of the artifacts in the container.
        steps: the folder of the records.
    """
    expected = {
        entry.output: ExpectedObject(
            entry.sha256,
            f"shard {artifact.manifest.shard}",
            f"{inside}/{artifact.folder.name}/{entry.file}",
            entry.command,
        )
        for artifact in artifacts
        for entry in artifact.manifest.objects
    }
    write_compiled(expected, steps)


def check_taken(artifacts: Iterable[KernelArtifact], steps: Path) -> None:
    """Raise unless the linked steps are all those of the shards."""
    found = {record.name for record in read_records(steps)}
    expected = {entry.output for one in artifacts for entry in one.manifest.objects}
    if found != expected:
        raise TorchwheelError(
            f"expected the {len(expected)} steps of the shards, found {len(found)}; they differ in "
            f"{min(found ^ expected)}; compile the shards of these sources"
        )
