"""Runs a recipe: in one folder, or with the objects in a folder that other builds share."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType

from torchwheel_runtime.builder import ninja
from torchwheel_runtime.builder.ninja import Plan, Step
from torchwheel_runtime.builder.recipe import Recipe
from torchwheel_runtime.errors import UsageError
from torchwheel_runtime.lock import hold_lock
from torchwheel_runtime.text import shorten

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
        found = _AVAILABLE.search(Path("/proc/meminfo").read_text("ascii"))
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
    recipe: Recipe,
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
        (library,) = ninja.run(recipe.whole(), folder, jobs, say, verbose=recipe.verbose)
        return library
    objects: list[Path] = []
    for name, steps in recipe.groups.items():
        missing = [step for step in steps if (name, step.output) not in compiled]
        if missing:
            compile_group(name, missing, shared, jobs, say, verbose=recipe.verbose)
        objects += [
            compiled.get((name, step.output), shared / name / step.output) for step in steps
        ]
    linked = recipe.linked([str(path) for path in objects])
    (library,) = ninja.run(linked, folder, jobs, say, verbose=recipe.verbose)
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
        plan = Plan(tuple(steps), tuple(step.output for step in steps))
        ninja.run(plan, group, jobs, say, verbose=verbose)
