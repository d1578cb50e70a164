"""Renders a plan to ninja and runs it."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import ninja

from torchwheel.builder.plan import Plan, Step
from torchwheel.errors import TorchwheelError
from torchwheel.files import write_text

_PROGRESS = re.compile(r"^\[\d+/\d+\] ")


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
        + f"\ndefault {_path(plan.output)}\n"
    )


def run(plan: Plan, folder: Path, jobs: int, say: Callable[[str], None]) -> Path:
    """Bring `plan` up to date in `folder`; returns the library. A compiler's words pass through."""
    folder.mkdir(parents=True, exist_ok=True)
    text = render(plan)
    file = folder / "build.ninja"
    if not file.exists() or file.read_text(encoding="utf-8") != text:
        write_text(file, text)
    command = [str(Path(ninja.BIN_DIR) / "ninja"), "-C", str(folder), "-j", str(jobs)]
    env = {**os.environ, "NINJA_STATUS": "[%s/%t] "}
    lines = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env
    ) as process:
        for line in process.stdout or ():
            lines.append(line.rstrip())
            say(line.rstrip())
    if process.returncode:
        raise TorchwheelError(_failure(lines))
    return folder / plan.output


def _failure(lines: list[str]) -> str:
    """The failed step and the compiler's first error line."""
    failed = next((line for line in lines if line.startswith("FAILED:")), "FAILED: a step")
    step = failed.removeprefix("FAILED:").split("]")[-1].strip()
    why = next(
        (line for line in lines if re.search(r"\berror\b", line, re.IGNORECASE)), "see above"
    )
    return f"building {step} failed: {why.strip()}"


def is_progress(line: str) -> bool:
    """Whether `line` is ninja's own "[2/9] CUDA file.cu"."""
    return bool(_PROGRESS.match(line))


def say_to_stdout(line: str) -> None:
    """Pass a line on at once."""
    print(line, file=sys.stdout, flush=True)
