"""A build as data, rendered to ninja and run."""

import dataclasses
import os
import re
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from torchwheel_runtime import process
from torchwheel_runtime.errors import TorchwheelError, program_error
from torchwheel_runtime.files import write_text
from torchwheel_runtime.ownership import UntrustedError, find_program


@dataclasses.dataclass(frozen=True)
class Step:
    """One command.

    Attributes:
        label: what a person sees.
        command: the program and its arguments.
        inputs: files that it reads.
        output: the file that it writes.
        depfile: lists the headers after the first run.
        parts: steps that several jobs can do in its place (arch_parts.py).
    """

    label: str
    command: tuple[str, ...]
    inputs: tuple[str, ...]
    output: str
    depfile: str | None = None
    parts: tuple["Step", ...] = ()


@dataclasses.dataclass(frozen=True)
class Plan:
    """Steps in an order in which each finds its inputs, and the files that are wanted of them."""

    steps: tuple[Step, ...]
    outputs: tuple[str, ...]


_PROGRESS = re.compile(r"^(\[\d+/\d+\]|waiting:) ")


def _path(text: str) -> str:
    """A path as ninja's build lines want it."""
    return re.sub(r"([$: ])", r"$\1", text)


def _value(text: str) -> str:
    return text.replace("$", "$$")


def _render_step(step: Step) -> str:
    lines = [f"build {_path(step.output)}: run {' '.join(map(_path, step.inputs))}".rstrip()]
    lines.append(f"  argv = {_value(shlex.join(step.command))}")
    lines.append(f"  label = {_value(step.label)}")
    if step.depfile:
        lines += [f"  depfile = {_value(step.depfile)}", "  deps = gcc"]
    return "\n".join(lines) + "\n"


def render(plan: Plan) -> str:
    """The text of build.ninja: one rule, a build line per step. ninja reruns a changed command."""
    head = "ninja_required_version = 1.8\n\nrule run\n  command = $argv\n  description = $label\n\n"
    return (
        head
        + "\n".join(_render_step(step) for step in plan.steps)
        + f"\ndefault {' '.join(map(_path, plan.outputs))}\n"
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
    plan: Plan, folder: Path, jobs: int, say: Callable[[str], None], *, verbose: bool = False
) -> list[Path]:
    """Bring `plan` up to date in `folder`; returns its outputs. A compiler's words pass through.

    Args:
        plan: the build.
        folder: for its outputs.
        jobs: commands side by side.
        say: hears each line.
        verbose: whether a step is announced by its command, not its label.
    """
    folder.mkdir(parents=True, exist_ok=True)
    text = render(plan)
    file = folder / "build.ninja"
    if not file.exists() or file.read_text(encoding="utf-8") != text:
        write_text(file, text)
    command = [find_ninja(), "-C", str(folder), "-j", str(jobs)]
    command += ["-v"] if verbose else []
    lines: list[str] = []

    def hear(line: str) -> None:
        lines.append(line)
        say(line)

    # On a terminal ninja names a step at its start, elsewhere at its end.
    env = {**os.environ, "NINJA_STATUS": "[%s/%t] ", "TERM": "xterm"}
    status = process.stream_terminal(command, hear, env)
    if status:
        raise program_error(_failure(lines, status))
    return [folder / output for output in plan.outputs]


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


def is_progress(line: str) -> bool:
    """Whether `line` is ninja's own "[2/9] CUDA file.cu", or says what is waited for."""
    return bool(_PROGRESS.match(line))


def say_to_stdout(line: str) -> None:
    """Pass a line on at once."""
    print(line, file=sys.stdout, flush=True)
