"""The compile steps of a project, as ninja lists them (`ninja -t compdb`).

torch's BuildExtension writes one graph for each extension. Its steps are all that a shard needs to
know. Standard library and torchwheel alone: a project's build runs this, see own_ninja.py.
"""

import dataclasses
import hashlib
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TypeVar

from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.json_files import parse_json
from torchwheel_runtime.shards import Shard

_OBJECT = ".o"
_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include(?:_next)?[ \t]*([<"])([^>"\n]+)[>"]', re.MULTILINE)
_PYTHON = "Python.h"
T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class CompileStep:
    """One call of a compiler.

    Attributes:
        name: "0/csrc/a.o": the number of its graph, and the object's path in the graph's folder.
        folder: where it runs.
        source: the file that it compiles.
        output: the object that it writes.
        command: the call.
    """

    name: str
    folder: str
    source: str
    output: str
    command: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Graph:
    """What one call of ninja makes.

    Attributes:
        steps: the steps that compile a source, by name.
        linked: objects that are made of objects, e.g. by nvcc's device link.
        link_commands: the calls that make these.
    """

    steps: tuple[CompileStep, ...]
    linked: tuple[str, ...]
    link_commands: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class StepRecord:
    """What is known of a step.

    Attributes:
        name: its name.
        source: the name of the file that it compiles.
        python: whether the source includes Python.h; None if nobody asked.
        sha256: of its object; None if it was not compiled.
        command: hash of its call and of the build requirements; None if nobody asked.
    """

    name: str
    source: str
    python: bool | None = None
    sha256: str | None = None
    command: str | None = None


@dataclasses.dataclass(frozen=True)
class ExpectedObject:
    """An object as it was when another job compiled it.

    Attributes:
        sha256: its hash.
        by: who compiled it, e.g. "shard 2/3".
        file: the object itself, where it was carried; None if a compiler cache has it.
        command: the `command` of its record.
    """

    sha256: str
    by: str
    file: str | None = None
    command: str | None = None


@dataclasses.dataclass(frozen=True)
class _CompileEntry:
    """What is read of an entry of `ninja -t compdb`."""

    directory: str
    command: str
    file: str
    output: str


def read_graph(compdb: str, number: int) -> Graph | None:
    """The graph that ninja lists; None if it makes anything else than objects.

    Args:
        compdb: what `ninja -t compdb` prints.
        number: how many graphs came before.

    Raises:
        MalformedError: ninja printed something else.
    """
    entries = parse_json(compdb, tuple[_CompileEntry, ...], "ninja -t compdb", others=True)
    if not entries or not all(entry.output.endswith(_OBJECT) for entry in entries):
        return None
    steps = []
    for entry in entries:
        if not entry.file.endswith(_OBJECT):
            path = os.path.relpath(Path(entry.directory, entry.output), entry.directory)
            command = tuple(shlex.split(entry.command))
            name = f"{number}/{path}"
            steps.append(CompileStep(name, entry.directory, entry.file, entry.output, command))
    # A setup.py may list its sources in any order (glob): every job must divide them alike.
    steps.sort(key=lambda step: step.name)
    links = [entry for entry in entries if entry.file.endswith(_OBJECT)]
    return Graph(
        tuple(steps), tuple(e.output for e in links), tuple(entry.command for entry in links)
    )


def steps_of_shard(steps: Sequence[T], shard: Shard, earlier: int = 0) -> list[T]:
    """The steps of a graph, or their records, that a shard compiles.

    `earlier` steps were in the graphs before: shards take turns through all of them, as a project
    may have many extensions of one file each.
    """
    turns = islice(shard.take(earlier + len(steps)), earlier, None)
    return [step for step, own in zip(steps, turns, strict=True) if own]


def command_hash(step: CompileStep, requirements: str) -> str:
    """Hash of a step's call, and of the build requirements whose headers it may read."""
    return hashlib.sha256("\n".join([*step.command, requirements]).encode()).hexdigest()


def carried_object(
    step: CompileStep, requirements: str, compiled: Mapping[str, ExpectedObject]
) -> ExpectedObject:
    """The object of a step that another job compiled by the same call.

    Raises:
        TorchwheelError: none did.
    """
    found = compiled.get(step.name)
    if found is None:
        raise _not_of_shards(step.name)
    if found.command != command_hash(step, requirements):
        raise TorchwheelError(
            f"{step.name}: expected the call and the build requirements that {found.by} compiled "
            "it with, found others; compile the shards of this build again"
        )
    return found


def _not_of_shards(name: str) -> TorchwheelError:
    return TorchwheelError(
        f"{name}: expected it among the steps of the shards, found it in none; compile the "
        "shards of these sources"
    )


def check_objects(found: Mapping[str, str], compiled: Mapping[str, ExpectedObject]) -> None:
    """Raise unless objects are those that other jobs compiled; `found` has their hashes."""
    for name, digest in found.items():
        expected = compiled.get(name)
        if expected is None:
            raise _not_of_shards(name)
        if digest != expected.sha256:
            raise TorchwheelError(
                f"{name}: expected the object that {expected.by} compiled, sha256 "
                f"{expected.sha256[:12]}, found {digest[:12]}: the compiler cache gave another "
                "one, or had lost it; compile it again, into a cache that nobody else writes to"
            )


def check_steps(found: Sequence[str], expected: Sequence[str], where: str = "") -> None:
    """Raise unless the steps that were linked are those of the shards; `where` starts the error."""
    if list(found) != list(expected):
        differing = min(set(found) ^ set(expected), default="their order")
        raise TorchwheelError(
            f"{where}expected the {len(expected)} steps of the shards, found {len(found)}; they "
            f"differ in {differing}; compile the shards of these sources"
        )


def include_folders(command: Sequence[str]) -> list[Path]:
    """The folders in which a compiler's call looks for headers."""
    found = []
    rest = iter(command)
    for word in rest:
        for option in ("-isystem", "-I"):
            if word.startswith(option):
                found.append(Path(word.removeprefix(option) or next(rest, ".")))
                break
    return found


class IncludeReader:
    """Tells which sources include Python.h: their objects are of one Python, all others of each.

    Files are read as text, and conditions (#if) count as met. So a source may be taken for one with
    Python.h that has none, but not the other way round, unless a macro names the header. That is a
    thousand times faster than a preprocessor: torch's 4,500 headers take a second, for all sources.
    A file is read once, however many sources include it.
    """

    def __init__(self) -> None:
        self._names: dict[Path, list[tuple[bool, str]]] = {}
        self._found: dict[tuple[Path | None, str, tuple[Path, ...]], Path | None] = {}

    def has_python(self, source: Path, folders: Sequence[Path]) -> bool:
        """Whether `source` includes Python.h, directly or through headers in `folders`."""
        seen, rest = {source}, [source]
        while rest:
            path = rest.pop()
            for quoted, name in self._includes_of(path):
                if name == _PYTHON:
                    return True
                header = self._find(path.parent if quoted else None, name, tuple(folders))
                if header and header not in seen:
                    seen.add(header)
                    rest.append(header)
        return False

    def _includes_of(self, path: Path) -> list[tuple[bool, str]]:
        if path not in self._names:
            text = path.read_bytes()
            self._names[path] = [
                (quote == b'"', name.decode(errors="replace"))
                for quote, name in _INCLUDE.findall(text)
            ]
        return self._names[path]

    def _find(self, beside: Path | None, name: str, folders: tuple[Path, ...]) -> Path | None:
        key = (beside, name, folders)
        if key not in self._found:
            places = ([beside] if beside else []) + list(folders)
            paths = (folder / name for folder in places)
            self._found[key] = next((path for path in paths if path.is_file()), None)
        return self._found[key]
