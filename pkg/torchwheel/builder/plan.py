"""A build as data: steps with their inputs, outputs and full command lines."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Step:
    """One command. `label` is what a person sees; `depfile` lists headers after the first run."""

    label: str
    command: tuple[str, ...]
    inputs: tuple[str, ...]
    output: str
    depfile: str | None = None


@dataclasses.dataclass(frozen=True)
class Plan:
    """Steps in an order in which each finds its inputs, and the files that are wanted of them."""

    steps: tuple[Step, ...]
    outputs: tuple[str, ...]
