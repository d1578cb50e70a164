"""Runs a recipe: in one folder, or with the objects in a folder that other builds share."""

import contextlib
import fcntl
from collections.abc import Callable, Iterator
from pathlib import Path

from torchwheel.builder import ninja
from torchwheel.builder.plan import Plan
from torchwheel.builder.recipe import Recipe


def build(
    recipe: Recipe, folder: Path, shared: Path | None, jobs: int, say: Callable[[str], None]
) -> Path:
    """Bring the library up to date; returns it.

    Args:
        recipe: the build.
        folder: the variant's own folder.
        shared: where each group of objects is compiled once for all builds that name this folder,
            in a folder of its own; None to compile in `folder`.
        jobs: compilers side by side.
        say: hears ninja's lines, and a line when another build is waited for.
    """
    if shared is None:
        (library,) = ninja.run(recipe.whole(), folder, jobs, say)
        return library
    objects: list[Path] = []
    for name, steps in recipe.groups.items():
        with _alone(shared / name, say):
            plan = Plan(steps, tuple(step.output for step in steps))
            objects += ninja.run(plan, shared / name, jobs, say)
    (library,) = ninja.run(recipe.linked([str(path) for path in objects]), folder, jobs, say)
    return library


@contextlib.contextmanager
def _alone(folder: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Hold `folder`'s lock; it goes with the process, so a killed build leaves none."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting: another build compiles {folder.name}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
