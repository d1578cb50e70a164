"""What a finished wheel has to pass: the gates, and its import beside nothing but torch."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from torchwheel.check.gates import GateResult, faults, passed, run_gates
from torchwheel.check.limits import Limits
from torchwheel.errors import TorchwheelError
from torchwheel.inspect.wheel import read_wheel
from torchwheel.pipeline.ordinary.environment import Requirements
from torchwheel.pipeline.ordinary.installed import InstalledTorch
from torchwheel.smoke import environment
from torchwheel.smoke.importing import importable, imports
from torchwheel.smoke.record import Imported, Machine


@dataclasses.dataclass(frozen=True)
class Proof:
    """What was found of a wheel; `borrowed` are the libraries it needs that torch brings."""

    gates: tuple[GateResult, ...]
    machine: Machine
    imported: tuple[Imported, ...]
    borrowed: tuple[str, ...]


def prove(
    wheel: Path,
    *,
    limits: Limits,
    names: Sequence[str],
    torch: InstalledTorch,
    base: Path,
    folder: Path,
) -> Proof:
    """Judge and try a wheel; raises with the first fact that is against it.

    Args:
        wheel: the file.
        limits: limits of the gates.
        names: what is imported; what the wheel installs if there are none.
        torch: the torch it is for.
        base: the cached environment that holds this torch.
        folder: an empty folder.
    """
    gates = run_gates(wheel, limits)
    if not passed(gates):
        raise TorchwheelError(faults(gates))
    # Its own requirements come from the index, torch stays.
    env = environment.over(base, folder / "clean")
    Requirements(env, torch, folder).install([str(wheel)], wheel.name)
    cwd = folder / "cwd"
    cwd.mkdir()
    facts = read_wheel(wheel)
    machine, imported = imports(env, names or importable(facts), cwd)
    for one in imported:
        if one.error:
            raise TorchwheelError(f"smoke: import {one.name}: {one.error}")
    borrowed = facts.claims.borrowed if facts.claims else ()
    return Proof(gates, machine, imported, borrowed)
