"""The lists of what the shards of a build compiled.

A compiler cache is a place that others write to, and sccache gives out what lies there. So each
shard writes the hashes of its objects into a list, which travels as an artifact of its job, and the
job that links compares what the cache gives it.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from torchwheel.compilers.compile_steps import ExpectedObject
from torchwheel_runtime.errors import MalformedError, TorchwheelError
from torchwheel_runtime.files import write_text
from torchwheel_runtime.json_files import read_json
from torchwheel_runtime.shards import Shard, parse_shard
from torchwheel_runtime.text import join_names

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
