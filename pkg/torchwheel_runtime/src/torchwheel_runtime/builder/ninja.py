"""A build as data, rendered to ninja and run: in one folder, or with objects that builds share."""

import dataclasses
import os
import re
import shlex
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from torchwheel_runtime import process
from torchwheel_runtime.console import show_output
from torchwheel_runtime.errors import TorchwheelError, UsageError, program_error
from torchwheel_runtime.files import write_text
from torchwheel_runtime.lock import hold_lock
from torchwheel_runtime.ownership import UntrustedError, find_program
from torchwheel_runtime.tasks import Count
from torchwheel_runtime.text import shorten

if TYPE_CHECKING:
    from torchwheel_runtime.builder.recipe import Recipe


@dataclasses.dataclass(frozen=True)
class Step:
    """One command.

    Attributes:
        label: what a person sees.
        command: the program and its arguments.
        inputs: files that it reads.
        output: the file that it writes.
        depfile: lists the headers after the first run; a step with one goes through LAUNCHER.
        parts: steps that several jobs can do in its place (`recipe.parts_of`).
    """

    label: str
    command: tuple[str, ...]
    inputs: tuple[str, ...]
    output: str
    depfile: str | None = None
    parts: tuple["Step", ...] = ()


LAUNCHER = "TORCHWHEEL_LAUNCHER"
"""The words before each compile command, e.g. "sccache"; empty for none."""
_PROGRESS = re.compile(r"^(?:\[(\d+)/(\d+)\] |(?=waiting: ))(.*)")


def _path(text: str) -> str:
    """A path as ninja's build lines want it."""
    return re.sub(r"([$: ])", r"$\1", text)


def _value(text: str) -> str:
    return text.replace("$", "$$")


def _render_step(step: Step) -> str:
    rule, argv = "run", shlex.join(step.command)
    if step.depfile:
        rule, argv = "compile", shlex.quote(argv)
    lines = [f"build {_path(step.output)}: {rule} {' '.join(map(_path, step.inputs))}".rstrip()]
    lines.append(f"  argv = {_value(argv)}")
    lines.append(f"  label = {_value(step.label)}")
    if step.depfile:
        lines += [f"  depfile = {_value(step.depfile)}", "  deps = gcc"]
    return "\n".join(lines) + "\n"


def wanted_files(steps: Sequence[Step]) -> list[str]:
    """The outputs that no step reads: what the steps are for."""
    read = {name for step in steps for name in step.inputs}
    return [step.output for step in steps if step.output not in read]


def render(steps: Sequence[Step]) -> str:
    """The text of build.ninja: a build line per step.

    ninja reruns a changed command. So the launcher, which is another one in each environment and
    changes no object, comes from the environment.
    """
    commands = {"run": "$argv", "compile": f'eval "$${LAUNCHER}" $argv'}
    rules = "".join(
        f"rule {name}\n  command = {command}\n  description = $label\n\n"
        for name, command in commands.items()
    )
    head = f"ninja_required_version = 1.8\n\n{rules}"
    return (
        head
        + "\n".join(_render_step(step) for step in steps)
        + f"\ndefault {' '.join(map(_path, wanted_files(steps)))}\n"
    )


def find_ninja() -> str:
    """The path of ninja: that of the package of this name, else the one on the PATH.

    Raises:
        TorchwheelError: there is none, or others can exchange it.
    """
    try:
        import ninja  # noqa: PLC0415 - no installed extension requires it
    except ImportError:
        pass
    else:
        return str(Path(ninja.BIN_DIR) / "ninja")
    skipped: list[UntrustedError] = []
    found = find_program("ninja", None, skipped.append)
    if found is None and skipped:
        raise skipped[0]
    if found is None:
        raise TorchwheelError(
            "ninja: expected it in this environment or on the PATH, found none; run "
            f"`{sys.executable} -m pip install ninja`"
        )
    return found


def run(
    steps: Sequence[Step],
    folder: Path,
    jobs: int,
    say: Callable[[str], None],
    *,
    verbose: bool = False,
) -> list[Path]:
    """Bring what `steps` are for up to date; returns its files. A compiler's words pass through.

    Args:
        steps: the build.
        folder: for its outputs.
        jobs: commands side by side.
        say: hears each line.
        verbose: whether a step is announced by its command, not its label.
    """
    try:
        shlex.split(os.environ.get(LAUNCHER, ""))
    except ValueError as error:
        raise UsageError(f"{LAUNCHER}: expected words as in a shell, found {error}") from error
    folder.mkdir(parents=True, exist_ok=True)
    text = render(steps)
    file = folder / "build.ninja"
    if not file.exists() or file.read_text(encoding="utf-8") != text:
        write_text(file, text)
    command = [find_ninja(), "-C", str(folder), "-j", str(jobs)]
    command += ["-v"] if verbose else []
    lines: list[str] = []

    def hear(line: str) -> None:
        lines.append(line)
        say(line)
        show_output(line)

    # On a terminal ninja names a step at its start and at its end, elsewhere at its end alone.
    env = {**os.environ, "NINJA_STATUS": "[%f/%t] ", "TERM": "xterm"}
    status = process.stream_terminal(command, hear, env)
    if status:
        raise program_error(_failure(lines, status))
    return [folder / output for output in wanted_files(steps)]


def _failure(lines: list[str], status: int) -> str:
    """The failed step and the compiler's first error line; or the signal that ended ninja."""
    if status < 0:
        return f"ninja was ended by {signal.Signals(-status).name} in {(lines or ['no step'])[-1]}"
    at = next((i for i, line in enumerate(lines) if line.startswith("FAILED:")), len(lines))
    step = "".join(lines[at : at + 1]).removeprefix("FAILED:").split("]")[-1].strip() or "a step"
    # The line after that is the command, which may have any word in it.
    errors = (line for line in lines[at + 2 :] if re.search(r"\berror\b", line, re.IGNORECASE))
    why = next(errors, (lines or ["ninja said nothing"])[-1])
    return f"building {step} failed: {why.strip()}"


def read_progress(line: str) -> tuple[str, Count | None] | None:
    """The step and the count of ninja's own "[2/9] CUDA file.cu"; or what is waited for."""
    found = _PROGRESS.match(line)
    if found is None:
        return None
    done, total, text = found.groups()
    return text, Count(int(done), int(total)) if total else None


def say_to_stdout(line: str) -> None:
    """Pass a line on at once."""
    print(line, file=sys.stdout, flush=True)


Objects = Mapping[tuple[str, str], Path]
"""Files of objects, by the name of the group and the output of the step."""

# Measured: a torch-free kernel file peaks at 0.2 GB an arch, and four archs are compiled at a time;
# the binding at 0.2 GB.
BYTES_PER_JOB = 1 << 30
BYTES_PER_COMPILER = 3 << 30
"""Measured: a compiler needs 1.5 to 3 GB for a file that includes torch/extension.h."""


_AVAILABLE = re.compile(r"^MemAvailable:\s*(\d+) kB$", re.MULTILINE)


def available_memory() -> int:
    """Bytes that programs can have without swapping; those of all memory where none says so."""
    try:
        found = _AVAILABLE.search(Path("/proc/meminfo").read_text("utf-8"))
    except OSError:
        found = None
    if found:
        return int(found[1]) << 10
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def parallel_jobs(
    environ: Mapping[str, str] = os.environ,
    *,
    bytes_per_job: int = BYTES_PER_JOB,
    cores: int | None = None,
    free: int | None = None,
) -> int:
    """MAX_JOBS if set, else the cores this process may use, fewer where memory is short."""
    asked = environ.get("MAX_JOBS")
    if asked:
        if not re.fullmatch("[0-9]{1,6}", asked) or int(asked) < 1:
            raise UsageError(f"MAX_JOBS={shorten(asked)}: a whole number of at least 1 expected")
        return int(asked)
    cores = len(os.sched_getaffinity(0)) if cores is None else cores
    free = available_memory() if free is None else free
    return max(1, min(cores, free // bytes_per_job))


def build(
    recipe: "Recipe",
    folder: Path,
    shared: Path | None,
    jobs: int,
    say: Callable[[str], None],
    compiled: Objects = MappingProxyType({}),
) -> Path:
    """Bring the library up to date; returns it.

    Args:
        recipe: the build.
        folder: the variant's own folder.
        shared: where each group of objects is compiled once for all builds that name this folder,
            in a folder of its own; None to compile in `folder`.
        jobs: compilers side by side.
        say: hears ninja's lines, and a line when another build is waited for.
        compiled: objects that were compiled elsewhere, by the object's path in its group's folder;
            they are linked as they are, which takes a shared folder.
    """
    if shared is None:
        (library,) = run(recipe.whole(), folder, jobs, say, verbose=recipe.verbose)
        return library
    objects: list[Path] = []
    for name, steps in recipe.groups.items():
        missing = [step for step in steps if (name, step.output) not in compiled]
        if missing:
            compile_group(name, missing, shared, jobs, say, verbose=recipe.verbose)
        objects += [
            compiled.get((name, step.output), shared / name / step.output) for step in steps
        ]
    steps = recipe.link_steps([str(path) for path in objects])
    (library,) = run(steps, folder, jobs, say, verbose=recipe.verbose)
    return library


def compile_group(
    name: str,
    steps: Sequence[Step],
    shared: Path,
    jobs: int,
    say: Callable[[str], None],
    *,
    verbose: bool = False,
) -> None:
    """Bring objects of a group up to date, in its folder below `shared`."""
    group = shared / name
    group.mkdir(parents=True, exist_ok=True)
    with hold_lock(group / "lock", partial(say, f"waiting: another build compiles {name}")):
        run(steps, group, jobs, say, verbose=verbose)
