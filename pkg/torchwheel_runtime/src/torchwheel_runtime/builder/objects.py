"""Objects that one build compiles and other builds link, maybe on another machine.

A job compiles what all variants of a toolkit share, and `collect_objects` writes it down. Each
object is named by the hash of its content, and listed with the hash of the command that made it.
`take_objects` takes those that a build would have made with the same commands.
"""

import dataclasses
import functools
import hashlib
import json
import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from torchwheel_runtime import process
from torchwheel_runtime.builder.ninja import Objects, Step, compile_group
from torchwheel_runtime.builder.recipe import (
    HOST,
    Recipe,
    folders_of,
    part_end,
    part_output,
    strip_folders,
)
from torchwheel_runtime.errors import TorchwheelError, UsageError
from torchwheel_runtime.files import make_folder_atomically, sha256
from torchwheel_runtime.json_files import FileName, read_json
from torchwheel_runtime.shards import Shard, object_file

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
    groups = {
        name: [part for step in steps for part in _parts_or_whole(step, shard)]
        for name, steps in _shared_groups(recipe).items()
    }
    mine = shard.take(sum(map(len, groups.values())))
    for name, steps in groups.items():
        chosen = [step for step in steps if next(mine)]
        if chosen:
            compile_group(name, chosen, shared, jobs, say, verbose=recipe.verbose)
        yield from ((name, step, shared / name / step.output) for step in chosen)


def _parts_or_whole(step: Step, shard: Shard) -> Sequence[Step]:
    """The step, or what several jobs do in its place."""
    return step.parts if shard.count > 1 and step.parts else (step,)


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
    listed = []
    with make_folder_atomically(folder) as temporary:
        for name, step, path in compiled:
            stripped = temporary / "stripped"
            if path.suffix == ".o":
                _strip(path, stripped, recipe)
            else:
                shutil.copyfile(path, stripped)
            entry = CompiledObject(
                name, step.output, command_digest(step, recipe), sha256(stripped)
            )
            stripped.replace(temporary / entry.file)
            listed.append(entry)
        (temporary / MANIFEST).write_text(object_list_text(listed), encoding="utf-8")


def _strip(path: Path, stripped: Path, recipe: Recipe) -> None:
    strip = _program("strip", recipe.target.cxx)
    command: list[str | Path] = [strip, "--strip-unneeded", "-o", stripped, path]
    process.run(command).require(f"strip of {path.name}")


@functools.cache
def _program(name: str, cxx: str) -> str:
    """A program that belongs to the compiler: it knows the machine that is compiled for."""
    done = process.run([cxx, f"-print-prog-name={name}"])
    done.require(f"{cxx} -print-prog-name={name}")
    return done.output.strip()


def command_digest(step: Step, recipe: Recipe) -> str:
    """Hash of a compile command, whatever folders of this machine it names."""
    (words,) = strip_folders([step.command], folders_of(recipe.target))
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

    def take(group: str, step: Step, required: bool) -> Path | None:
        folder, entry = listed.get((group, step.output), (None, None))
        if folder and entry and entry.command == command_digest(step, recipe):
            return _copy_checked(folder / entry.file, into, entry)
        if required:
            found = "one that was compiled with other flags" if entry else "none"
            raise TorchwheelError(
                f"{' '.join(map(str, folders))}: expected the object of {step.label}, found "
                f"{found}; compile them again with `torchwheel kernels`"
            )
        return None

    for group, steps in recipe.groups.items():
        required = only and group == recipe.flavour.device.name
        for step in steps:
            if any((group, part.output) in listed for part in step.parts):
                parts = {part.output: take(group, part, required) for part in step.parts}
                files = {output: file for output, file in parts.items() if file}
                found = _join(step, files, recipe, into) if len(files) == len(parts) else None
            else:
                found = take(group, step, required)
            if found:
                taken[group, step.output] = found
    return taken


def _join(step: Step, parts: Mapping[str, Path], recipe: Recipe, into: Path) -> Path:
    """The object of a step from those of its parts."""
    joined = join_parts(
        step.command, step.output, parts, _program("objcopy", recipe.target.cxx), into
    )
    stripped = into / f"{hashlib.sha256(step.output.encode()).hexdigest()}.o"
    _strip(joined, stripped, recipe)
    joined.unlink()
    return stripped


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


_SECTION = ".nv_fatbin"  # of an object, with the code for all archs
_IMAGE = re.compile(r"--image3=kind=(elf|ptx),sm=(\w+),file=.*")


def join_parts(
    command: Sequence[str], output: str, parts: Mapping[str, Path], objcopy: str, into: Path
) -> Path:
    """The object `output` of its parts, in the folder `into`, joined as nvcc would.

    nvcc's `--dryrun` prints its call of `fatbinary`. The object has the bytes of one that nvcc
    compiled as a whole, but for symbols that no linker needs.

    Args:
        command: nvcc's call for the whole file.
        output: the object's name.
        parts: the files of the parts, by their outputs.
        objcopy: the program of the object's machine.
        into: a folder.
    """
    options, path = _fatbinary_call([*command, "--dryrun"])
    fatbinary = shutil.which("fatbinary", path=path)
    if fatbinary is None:
        raise TorchwheelError(f"{command[0]}: expected `fatbinary` beside it, found none")
    name = Path(output).name
    code, joined = into / f"{name}.fatbin", into / name
    words = [_with_part(option, output, parts) for option in options]
    process.run([fatbinary, *words, f"--create={code}"]).require(f"fatbinary of {output}")
    host = parts[part_output(output, HOST)]
    copy: list[str | Path] = [objcopy, "--update-section", f"{_SECTION}={code}", host, joined]
    process.run(copy).require(f"objcopy of {output}")
    code.unlink()
    return joined


def _fatbinary_call(command: Sequence[str]) -> tuple[list[str], str]:
    """The options of fatbinary, and the PATH on which nvcc looks for it."""
    done = process.run(command, merge=True)
    done.require("nvcc --dryrun")
    lines = [line.removeprefix("#$ ") for line in done.output.splitlines()]
    path = next((line.partition("=")[2] for line in lines if line.startswith("PATH=")), os.defpath)
    calls = [line for line in lines if line.startswith("fatbinary ")]
    if len(calls) != 1:
        raise TorchwheelError(
            f"nvcc --dryrun: expected one call of fatbinary, found {len(calls)}; compile without "
            "shards"
        )
    # With --threads the call is followed by redirections.
    words = [word for word in shlex.split(calls[0]) if word.startswith("-")]
    return [word for word in words if not word.startswith("--embedded-fatbin=")], path


def _with_part(option: str, output: str, parts: Mapping[str, Path]) -> str:
    """The option of fatbinary with our file in it, if it names an image."""
    image = _IMAGE.fullmatch(option)
    if image is None:
        return option
    kind, number = image.groups()
    part = parts.get(part_output(output, part_end(kind, number)))
    if part is None:
        raise TorchwheelError(
            f"nvcc --dryrun: an image of {output}, {kind} for {number}, is no part of its compile; "
            "compile without shards"
        )
    return f"--image3=kind={kind},sm={number},file={part}"
