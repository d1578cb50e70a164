"""Runs a recipe: in one folder, or with the objects in a folder that other builds share."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from torchwheel.builder import ninja
from torchwheel.builder.plan import Plan
from torchwheel.builder.recipe import Recipe
from torchwheel.lock import alone


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
        group = shared / name
        group.mkdir(parents=True, exist_ok=True)
        with alone(group / "lock", partial(say, f"waiting: another build compiles {name}")):
            plan = Plan(steps, tuple(step.output for step in steps))
            objects += ninja.run(plan, group, jobs, say)
    (library,) = ninja.run(recipe.linked([str(path) for path in objects]), folder, jobs, say)
    return library
