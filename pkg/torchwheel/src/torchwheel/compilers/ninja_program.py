"""The `ninja` that a project's setup.py calls where its steps are divided.

torch's BuildExtension writes a graph for each extension, calls `ninja -v -j N`, and links the
objects. This program takes that call. It compiles the steps of its shard with the real ninja. The
objects of other shards become empty ones, so that setup.py goes on to its next extension; the
library that it links is thrown away. Any other call of ninja goes to the real one.

It runs among the project's code, so it needs the standard library and torchwheel alone.
"""

import argparse
import dataclasses
import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal, get_args

import torchwheel
import torchwheel_runtime
from torchwheel import programs
from torchwheel.compilers.compile_steps import (
    CompileStep,
    ExpectedObject,
    Graph,
    IncludeReader,
    StepRecord,
    carried_object,
    check_objects,
    command_hash,
    include_folders,
    read_graph,
    steps_of_shard,
)
from torchwheel.compilers.compiler_cache import CacheUse, wait_for_writes
from torchwheel_runtime import process
from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.files import sha256, write_text
from torchwheel_runtime.json_files import read_json
from torchwheel_runtime.shards import Shard, object_file, parse_shard

Work = Literal["plan", "shard", "link"]
"""What is done with a graph: list its steps; compile a shard of them; compile all, to be linked."""

_START = (
    "import os, sys; sys.path += sys.argv.pop(1).split(os.pathsep); from {} import main; main()"
)
_VERSION = "import os, sys; os.execv(sys.argv[1], [sys.argv[1], '--version'])"
_WHOLE = re.compile(r"-v|--verbose|-j\d*|\d+")
"""The words of a call that makes the whole graph of the current folder."""
REQUIREMENTS = "requirements.txt"
"""The build requirements, by name and version, where the folder of the records has them."""
_STATISTICS, _COMPILED = "cache.json", "compiled.json"


def command(
    work: Work,
    folder: Path,
    ninja: Path,
    compiler: Path,
    launcher: Sequence[str],
    shard: Shard,
    *,
    keep: bool = False,
) -> list[str]:
    """The command that runs this program; ninja's arguments follow.

    Args:
        work: what is done with each graph.
        folder: where the records are written.
        ninja: the real one.
        compiler: a C++ compiler, for empty objects.
        launcher: the compiler launcher of the build.
        shard: the part that is compiled, of "shard".
        keep: copy the objects of a shard to its records, to be carried to the job that links.
    """
    # The program itself: in the sandbox a virtual environment's link would lead nowhere. It finds
    # torchwheel without that environment, whose import hook may be all that does (pip install -e).
    start = [os.path.realpath(sys.executable), "-I", "-S", "-c", _START.format(__name__)]
    options = ["--folder", str(folder), "--ninja", str(ninja), "--compiler", str(compiler)]
    options += ["--shard", str(shard)]
    options += [f"--launcher={launcher[0]}"] if launcher else []
    options += ["--keep"] if keep else []
    # Both distributions: a checkout has them in two places.
    halves = dict.fromkeys(
        str(Path(one.__path__[0]).parent) for one in (torchwheel, torchwheel_runtime)
    )
    return [*start, os.pathsep.join(halves), work, *options, "--"]


def check_starts(program: Path, python: str) -> None:
    """Raise unless `program`, which calls this one, starts where `python` does.

    Without a ninja torch's BuildExtension compiles all files in another way, and says nothing.
    """
    done = process.run([python, "-c", _VERSION, program])
    done.require("the ninja of a divided build does not start")


def read_records(folder: Path) -> list[StepRecord]:
    """The steps of all graphs so far, in their order."""
    files = sorted(folder.glob("graph-*.json"))
    return [step for file in files for step in read_json(file, tuple[StepRecord, ...])]


def write_compiled(compiled: Mapping[str, ExpectedObject], folder: Path) -> None:
    """Write what other jobs compiled, which the objects that are linked must be."""
    found = {name: dataclasses.asdict(one) for name, one in compiled.items()}
    write_text(folder / _COMPILED, json.dumps(found))


def read_compiled(folder: Path) -> Mapping[str, ExpectedObject]:
    """What other jobs compiled; nothing if none did."""
    file = folder / _COMPILED
    return read_json(file, dict[str, ExpectedObject]) if file.exists() else {}


def read_cache_use(folder: Path) -> CacheUse:
    """How often the build's compiler cache had the object, so far."""
    file = folder / _STATISTICS
    return read_json(file, CacheUse) if file.exists() else CacheUse()


def main() -> None:
    """Take a call of ninja."""
    end = sys.argv.index("--")
    options = _parser().parse_args(sys.argv[1:end])
    call = sys.argv[end + 1 :]
    try:
        status = _make(options, call)
    except TorchwheelError as error:
        print(f"torchwheel: {error}", file=sys.stderr)
        status = 1
    sys.exit(status)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    parser.add_argument("work", choices=get_args(Work))
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--ninja", required=True)
    parser.add_argument("--compiler", required=True)
    parser.add_argument("--launcher")
    parser.add_argument("--shard", type=lambda text: parse_shard(text, "--shard"), required=True)
    parser.add_argument("--keep", action="store_true")
    return parser


def _make(options: argparse.Namespace, call: Sequence[str]) -> int:
    """Make the graph of the current folder, or this shard of it; returns the exit status."""
    number = len(list(options.folder.glob("graph-*.json")))
    graph = None
    if all(_WHOLE.fullmatch(word) for word in call):
        listed = process.run([options.ninja, "-t", "compdb"])
        graph = read_graph(listed.output, number) if listed.status == 0 else None
    if graph is None:
        return _run([options.ninja, *call])
    own = _own_steps(options, graph)
    compiled = read_compiled(options.folder)
    status = 0
    if any(one.file for one in compiled.values()):
        status = _take_carried(graph, compiled, options.folder)
    elif own:
        # Without a target ninja makes everything.
        targets = [] if options.work == "link" else [step.output for step in own]
        status = _run([options.ninja, *call, *targets])
    if status:
        return status
    hashes = {step.name: sha256(Path(step.folder, step.output)) for step in own}
    if options.keep and options.work == "shard":
        for step in own:
            file = options.folder / object_file(hashes[step.name])
            shutil.copyfile(Path(step.folder, step.output), file)
    if compiled:
        check_objects(hashes, compiled)
    if options.work != "link":
        others = [step.output for step in graph.steps if step not in own]
        _write_empty([*others, *graph.linked], options.compiler)
    requirements = _requirements(options.folder) if options.keep else None
    records = _records(graph, hashes, requirements, ask_python=options.work == "plan")
    text = json.dumps([dataclasses.asdict(record) for record in records], indent=1)
    write_text(options.folder / f"graph-{number:03}.json", text + "\n")
    if options.launcher and not options.keep:
        _count_cache_use(options)
    return 0


def _count_cache_use(options: argparse.Namespace) -> None:
    """Wait until the objects are in the compiler cache, and write down how often it had one."""
    use = wait_for_writes([options.launcher], os.environ)
    if use.failed and options.work == "shard":
        raise TorchwheelError(
            f"{use.failed} objects of this shard are not in the compiler cache, which does not "
            "take them; is it full, or for reading alone?"
        )
    write_text(options.folder / _STATISTICS, json.dumps(dataclasses.asdict(use)))


def _requirements(folder: Path) -> str:
    file = folder / REQUIREMENTS
    return file.read_text(encoding="utf-8") if file.exists() else ""


def _take_carried(graph: Graph, compiled: Mapping[str, ExpectedObject], folder: Path) -> int:
    """Put the objects of other jobs where the compiler would; returns the status of a link."""
    requirements = _requirements(folder)
    for step in graph.steps:
        found = carried_object(step, requirements, compiled)
        target = Path(step.folder, step.output)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(str(found.file), target)
        check_objects({step.name: sha256(target)}, compiled)
    print(f"torchwheel: {len(graph.steps)} objects of other jobs, none compiled", flush=True)
    for command in graph.link_commands:
        # As ninja would, which does not know that these objects are finished.
        if status := _run(["/bin/sh", "-c", command]):
            return status
    return 0


def _run(command: Sequence[str]) -> int:
    """Run a program, which prints as it goes; returns its exit status."""
    with open(os.devnull, "w", encoding="utf-8") as nothing:  # noqa: PTH123 - a device
        return programs.stream(command, lambda line: print(line, flush=True), log=nothing)


def _own_steps(options: argparse.Namespace, graph: Graph) -> Sequence[CompileStep]:
    if options.work == "plan":
        return []
    if options.work == "link":
        return graph.steps
    return steps_of_shard(graph.steps, options.shard, len(read_records(options.folder)))


def _records(
    graph: Graph, hashes: dict[str, str], requirements: str | None, *, ask_python: bool
) -> list[StepRecord]:
    reader = IncludeReader()
    return [
        StepRecord(
            step.name,
            Path(step.source).name,
            reader.has_python(Path(step.folder, step.source), include_folders(step.command))
            if ask_python
            else None,
            hashes.get(step.name),
            None if requirements is None else command_hash(step, requirements),
        )
        for step in graph.steps
    ]


def _write_empty(outputs: Iterable[str], compiler: str) -> None:
    """Write objects without any code, which a linker takes."""
    empty = Path("torchwheel-empty.o").absolute()
    process.run([compiler, "-x", "c++", "-c", "/dev/null", "-o", empty]).require("an empty object")
    for output in outputs:
        Path(output).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(empty, output)
