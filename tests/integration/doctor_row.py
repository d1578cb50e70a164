"""One row of the table of broken set-ups."""

import dataclasses
from collections.abc import Callable

import torch
from doctor_bench import Bench

RELEASE = torch.__version__.partition("+")[0]
CUDA_TORCH = {"__version__": f"{RELEASE}+cu130", "cuda": "13.0"}

Make = Callable[[Bench], "dict[str, str] | None"]
"""Breaks a set-up; what it returns is added to the environment of the doctor."""


@dataclasses.dataclass(frozen=True)
class Broken:
    """A row of the table: what is broken, how it is made, and the exit status."""

    what: str
    make: Make
    status: int = 1
    arguments: tuple[str, ...] = ("demo",)


ROWS: list[Broken] = []


def row(what: str, **more: object) -> Callable[[Make], Make]:
    def add(make: Make) -> Make:
        ROWS.append(Broken(what, make, **more))  # type: ignore[arg-type]
        return make

    return add
