"""Objects that one build compiles and other builds link, maybe on another machine.

A job compiles what all variants of a toolkit share, and `collect_objects` writes it down. Each
object is named by the hash of its content, and listed with the hash of the command that made it.
`take_objects` takes those that a build would have made with the same commands.
"""

import dataclasses
import hashlib
import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from torchwheel import process
from torchwheel.builder.build import Objects, compile_group
from torchwheel.builder.ninja import Step
from torchwheel.builder.recipe import Recipe
from torchwheel.errors import TorchwheelError, UsageError
from torchwheel.files import make_folder_atomically, sha256
from torchwheel.json_files import FileName, read_json
from torchwheel.shards import Shard, object_file

MANIFEST = "manifest.json"
SCHEMA = 1


@dataclasses.dataclass(frozen=True)
class CompiledObject:
    """An object file.

    Attributes:
        group: the name of its step's group.
        output: the output of its step.
        command: hash of its step's command.
        sha256: hash of its bytes. Its file is named by it, so it may name no folder.
    """

    group: str
    output: str
    command: str
    sha256: FileName

    @property
    def file(self) -> str:
        """Name of its file."""
        return object_file(self.sha256)


@dataclasses.dataclass(frozen=True)
class ObjectList:
    """The part of a manifest that a build reads."""

    objects: tuple[CompiledObject, ...]


def object_list_text(objects: Iterable[CompiledObject]) -> str:
    """The content of MANIFEST where a build leaves objects."""
    return json.dumps(dataclasses.asdict(ObjectList(tuple(objects))), indent=1) + "\n"


def compile_shared(
    recipe: Recipe, shared: Path, shard: Shard, jobs: int, say: Callable[[str], None]
) -> Iterator[tuple[str, Step, Path]]:
    """Compile this shard of what variants share; yields each group, step and object.

    What meets Python is left out: it is compiled for one variant alone.
    """
    groups = _shared_groups(recipe)
    mine = shard.take(sum(map(len, groups.values())))
    for name, steps in groups.items():
        chosen = [step for step in steps if next(mine)]
        if chosen:
            compile_group(name, chosen, shared, jobs, say, verbose=recipe.verbose)
        yield from ((name, step, shared / name / step.output) for step in chosen)


def _shared_groups(recipe: Recipe) -> Mapping[str, Sequence[Step]]:
    if not recipe.flavour.warnings:
        raise UsageError(
            "the kernels of this extension include torch's headers, so that no two variants share "
            "them; build its wheels without `kernels`"
        )
    python = recipe.flavour.python
    return {
        name: steps for name, steps in recipe.groups.items() if not python or name != python.name
    }


def collect_objects(
    recipe: Recipe, compiled: Iterator[tuple[str, Step, Path]], folder: Path
) -> None:
    """Replace `folder` by the objects and their list.

    Symbols that no other file needs are removed: compilers write names with a process id there, and
    the linker drops them anyhow. Two compiles then give the same bytes.
    """
    strip = _strip_program(recipe.target.cxx)
    listed = []
    with make_folder_atomically(folder) as temporary:
        for name, step, path in compiled:
            stripped = temporary / "stripped"
            process.run([strip, "--strip-unneeded", "-o", stripped, path]).require(
                f"strip of {step.output}"
            )
            entry = CompiledObject(
                name, step.output, command_digest(step, recipe), sha256(stripped)
            )
            stripped.replace(temporary / entry.file)
            listed.append(entry)
        (temporary / MANIFEST).write_text(object_list_text(listed), encoding="utf-8")


def _strip_program(cxx: str) -> str:
    """The `strip` that belongs to a compiler; it knows the machine that is compiled for."""
    done = process.run([cxx, "-print-prog-name=strip"])
    done.require(f"{cxx} -print-prog-name=strip")
    return done.output.strip()


def command_digest(step: Step, recipe: Recipe) -> str:
    """Hash of a compile command, whatever folders of this machine it names."""
    target = recipe.target
    folders = {
        str(target.source): "source",
        str(target.toolkit.root): "toolkit",
        str(target.torch.root): "torch",
        str(Path(__file__).parents[1]): "torchwheel",
    }
    words = []
    for word in step.command[len(target.launcher) :]:
        named = word
        for folder in sorted(folders, key=len, reverse=True):
            named = named.replace(folder, f"\0{folders[folder]}\0")
        words.append(named)
    return hashlib.sha256(json.dumps(words).encode()).hexdigest()


def take_objects(recipe: Recipe, folders: Sequence[Path], into: Path, *, only: bool) -> Objects:
    """Copies of the objects of `folders` that this build would compile with the same commands.

    Args:
        recipe: the build.
        folders: each has a manifest and its objects.
        into: the folder for the copies. What was checked is what is linked.
        only: whether a kernel that is not there is an error.
    """
    listed = {
        (entry.group, entry.output): (folder, entry)
        for folder in folders
        for entry in read_json(folder / MANIFEST, ObjectList, others=True).objects
    }
    taken = {}
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    for name, steps in recipe.groups.items():
        for step in steps:
            folder, entry = listed.get((name, step.output), (None, None))
            if folder and entry and entry.command == command_digest(step, recipe):
                taken[name, step.output] = _copy_checked(folder / entry.file, into, entry)
            elif only and name == recipe.flavour.device.name:
                found = "one that was compiled with other flags" if entry else "none"
                raise TorchwheelError(
                    f"{' '.join(map(str, folders))}: expected the object of {step.label}, found "
                    f"{found}; compile them again with `torchwheel kernels`"
                )
    return taken


def _copy_checked(source: Path, into: Path, entry: CompiledObject) -> Path:
    copy = into / entry.file
    if not copy.exists():
        shutil.copyfile(source, copy)
    found = sha256(copy)
    if found != entry.sha256:
        raise TorchwheelError(
            f"{source}: expected the sha256 {entry.sha256}, found {found}; compile it again with "
            "`torchwheel kernels`"
        )
    return copy
