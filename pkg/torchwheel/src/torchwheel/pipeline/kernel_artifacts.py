"""Artifacts with compiled objects: their manifests, the choice among them, how they are linked.

An artifact is a folder of objects and a manifest, which lists their inputs and hashes. A hash of
the inputs is in the name of the folder. An artifact is used if it has the inputs of this run, and
every object has the hash that the manifest says.

Those of an ordinary project's shards are kept by the jobs that compile and taken by the one that
links. The `ninja` of a divided build (compilers/ninja_program.py) runs in the container and leaves
its records and objects in the variant's folder.
"""

import dataclasses
import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from torchwheel import __version__
from torchwheel.compilers.compile_steps import ExpectedObject, check_steps
from torchwheel.compilers.ninja_program import read_records, write_compiled
from torchwheel.matrix.kernel_builds import KernelBuild
from torchwheel.pipeline.sources import content_digest, is_plain_file, source_files
from torchwheel_runtime.arch.lists import arch_list
from torchwheel_runtime.builder.objects import MANIFEST, SCHEMA, CompiledObject, object_list_text
from torchwheel_runtime.builder.recipe import own_sources_digest
from torchwheel_runtime.builder.variables import operator_switches
from torchwheel_runtime.errors import MalformedError, TorchwheelError, UsageError
from torchwheel_runtime.files import sha256, write_text
from torchwheel_runtime.json_files import read_bounded, read_json
from torchwheel_runtime.shards import Shard, parse_shard
from torchwheel_runtime.text import escape, join_names, quote
from torchwheel_runtime.toolkit.lock import components

# Files that a compiler of C++ or device code reads.
_NATIVE = {
    *(".c", ".cc", ".cpp", ".cu", ".cuh", ".cxx", ".def", ".h", ".hh", ".hip", ".hpp", ".hxx"),
    *(".inc", ".inl", ".ipp"),
}
# A file that defines an Extension: its flags and macros are in the commands.
_EXTENSION = re.compile(rb"^EXTENSION\b *[:=]", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class KernelInputs:
    """Everything that decides the bytes of objects, but for their commands.

    Attributes:
        kernels: the toolkit, with the platform where it is not the usual one.
        project: name of the distribution.
        archs: the arch list.
        toolkit: hash of the toolkit's section of the matrix, and of its locked components.
        compiler: the host's compiler, or the part of the image that compilers see.
        torchwheel: its version, and a hash of its own sources.
        build: what decides an ordinary project's build, and its torch; empty for others.
        switches: the variables that leave operators out, e.g. "DEMO_BUILD_OP_SCALE=0".
        sources: hash of each file of the project that a compiler can read or that defines its
            Extension and of each link, of an ordinary project of each file.
    """

    kernels: str
    project: str
    archs: str
    toolkit: str
    compiler: str
    torchwheel: str
    build: str
    switches: str
    sources: dict[str, str]

    @property
    def key(self) -> str:
        """Hash of all of them."""
        return _hash(dataclasses.asdict(self))


@dataclasses.dataclass(frozen=True)
class Manifest:
    """What an artifact says of itself.

    Attributes:
        inputs: the inputs of its objects.
        shard: which part of the objects it has, e.g. "1/1".
        compiled_twice: whether a second compile, elsewhere and without caches, gave the same bytes.
        objects: the objects.
    """

    inputs: KernelInputs
    shard: str
    compiled_twice: bool
    objects: tuple[CompiledObject, ...]


@dataclasses.dataclass(frozen=True)
class KernelArtifact:
    """An artifact in `folder`; `digest` is the hash of its manifest."""

    folder: Path
    manifest: Manifest
    digest: str


def _hash(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def kernel_inputs(
    build: KernelBuild, project: str, source: Path, compiler: Sequence[str], own: str = ""
) -> KernelInputs:
    """The inputs of a build's kernels, of the project in `source`.

    `compiler` names the compiler or the image; `own` what decides an ordinary project's build.
    """
    toolkit = build.toolkit
    locked = components(toolkit.version) if toolkit.source == "pypi" else ()
    return KernelInputs(
        kernels=build.id,
        project=project,
        archs=arch_list(toolkit.archs),
        toolkit=_hash(
            [toolkit.model_dump(mode="json"), [dataclasses.asdict(part) for part in locked]]
        ),
        compiler=" ".join(compiler),
        torchwheel=f"{__version__} {own_sources_digest()}",
        build=own,
        switches=" ".join(
            f"{name}={value}" for name, value in operator_switches(os.environ).items()
        ),
        sources={
            path.relative_to(source).as_posix(): content_digest(path)
            for path in source_files(source)
            if own or path.is_symlink() or path.suffix in _NATIVE or _defines_extension(path)
        },
    )


def _defines_extension(path: Path) -> bool:
    return path.suffix == ".py" and bool(_EXTENSION.search(read_bounded(path)))


def folder_name(inputs: KernelInputs, shard: Shard) -> str:
    """Name of an artifact's folder: "cu124-0123456789abcdef"."""
    return f"{inputs.kernels}-{inputs.key[:16]}{shard.suffix}"


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest of the objects that are in `folder`."""
    text = json.dumps({"schema": SCHEMA, **dataclasses.asdict(manifest)}, indent=1) + "\n"
    (folder / MANIFEST).write_text(text, encoding="utf-8")


def read_artifact(folder: Path) -> KernelArtifact:
    """The artifact in `folder`; its objects are not looked at.

    Raises:
        MalformedError: one line: the manifest is missing or not as expected.
    """
    path, do = folder / MANIFEST, "compile them again with `torchwheel kernels`"
    try:
        manifest = read_json(path, Manifest, do=do, schema=SCHEMA, complete=True)
        parse_shard(manifest.shard, "shard")
        return KernelArtifact(folder, manifest, sha256(path))
    except UsageError as error:
        raise MalformedError(escape(str(path)), str(error), do) from None
    except OSError as error:
        reason = f"expected a manifest, found an error: {error.strerror}"
        raise MalformedError(escape(str(path)), reason, do) from error


def find_artifacts(folder: Path) -> tuple[list[KernelArtifact], list[MalformedError]]:
    """The artifacts in the folders below `folder`, and the errors of those that cannot be read."""
    try:
        folders = sorted(Path(entry.path) for entry in os.scandir(folder) if entry.is_dir())
    except OSError as error:
        raise UsageError(
            f"--kernels {escape(str(folder))}: expected a folder that `torchwheel kernels` wrote, "
            f"found an error: {error.strerror}"
        ) from error
    found, errors = [], []
    for path in folders:
        if path.name.startswith("."):
            continue  # of a run that writes there
        try:
            found.append(read_artifact(path))
        except MalformedError as error:
            errors.append(error)
    return found, errors


def choose_artifacts(folder: Path, inputs: KernelInputs) -> tuple[KernelArtifact, ...]:
    """The artifacts below `folder` that together have all objects of these inputs, verified.

    Raises:
        TorchwheelError: one line: there are none, or they have other inputs or other bytes.
    """
    found, errors = find_artifacts(folder)
    named = [one for one in found if one.manifest.inputs.kernels == inputs.kernels]
    alike = [one for one in named if one.manifest.inputs == inputs]
    chosen = _all_shards(alike)
    if not chosen:
        if errors:
            raise errors[0]
        raise TorchwheelError(_why_none(folder, inputs, found, named, alike))
    for artifact in chosen:
        verify_objects(artifact)
    return chosen


def _all_shards(artifacts: Iterable[KernelArtifact]) -> tuple[KernelArtifact, ...]:
    """The artifacts of one division into shards, if all of them are there; the fewest shards."""
    by_shard = {one.manifest.shard: one for one in artifacts}
    counts = sorted({parse_shard(text, MANIFEST).count for text in by_shard})
    for count in counts:
        wanted = [str(Shard(number, count)) for number in range(1, count + 1)]
        if all(shard in by_shard for shard in wanted):
            return tuple(by_shard[shard] for shard in wanted)
    return ()


def _why_none(
    folder: Path,
    inputs: KernelInputs,
    found: Sequence[KernelArtifact],
    named: Sequence[KernelArtifact],
    alike: Sequence[KernelArtifact],
) -> str:
    do = f"compile them with `torchwheel kernels {inputs.kernels}`"
    if alike:
        shards = join_names(sorted(one.manifest.shard for one in alike))
        return f"{folder}: expected all shards of {inputs.kernels}, found {shards}; {do}"
    if named:
        expected, other = _difference(inputs, named[0].manifest.inputs)
        return f"{named[0].folder}: expected kernels of {expected}, found {other}; {do}"
    names = join_names(sorted({one.manifest.inputs.kernels for one in found})) if found else "none"
    return f"{folder}: expected kernels of {inputs.kernels}, found {names}; {do}"


def _difference(expected: KernelInputs, found: KernelInputs) -> tuple[str, str]:
    """The first input that differs, as it was expected and as it was found."""
    for field in dataclasses.fields(KernelInputs):
        one, other = getattr(expected, field.name), getattr(found, field.name)
        if isinstance(one, dict) and one != other:
            name = min(path for path in {*one, *other} if one.get(path) != other.get(path))
            return _file_in(one, name), _file_in(other, name)
        if one != other:
            return f"the {field.name} {quote(str(one))}", quote(str(other))
    raise ValueError("nothing differs")


def _file_in(sources: Mapping[str, str], name: str) -> str:
    return f"{quote(name)} {sources[name][:16]}" if name in sources else "no such file"


def verify_objects(artifact: KernelArtifact) -> None:
    """Raise if an object of an artifact is missing or has other bytes than its manifest says."""
    do = "compile them again with `torchwheel kernels`"
    for entry in artifact.manifest.objects:
        path = artifact.folder / entry.file
        if not is_plain_file(path):
            raise TorchwheelError(f"{path}: expected an object file, found none; {do}")
        found = sha256(path)
        if found != entry.sha256:
            output = quote(entry.output)
            raise TorchwheelError(f"{path}: expected {output}, found the sha256 {found}; {do}")


def digests(artifacts: Iterable[KernelArtifact]) -> Mapping[str, str]:
    """Hash of each artifact's manifest, by the name of its folder."""
    return {
        folder_name(one.manifest.inputs, parse_shard(one.manifest.shard, MANIFEST)): one.digest
        for one in artifacts
    }


_GROUP = "steps"


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
    check_steps(sorted(found), sorted(expected))
