"""Rules about code for the GPUs: machine code that runs, or PTX that the driver compiles."""

import dataclasses
from collections.abc import Sequence

from torchwheel.arch.devices import Gpu
from torchwheel.arch.model import Arch, backend, parse
from torchwheel.arch.runs import machine_code_runs_on, runs_on
from torchwheel.claims import Claims
from torchwheel.errors import TorchwheelError
from torchwheel.machine.model import Driver
from torchwheel.validate import compat
from torchwheel.validate.driver_rules import described
from torchwheel.validate.finding import Finding


def code(
    claims: Claims, release: str, gpus: Sequence[Gpu], driver: Driver | None, fix: str
) -> list[Finding]:
    """There is code for every GPU; where one has none, others may have.

    Args:
        claims: those of the library; its arch list counts.
        release: the toolkit's, which is that of the PTX.
        gpus: the visible ones; those of another backend count for nothing.
        driver: theirs, which compiles PTX of no release but its own and older ones.
        fix: what brings code for a GPU that has none; "{}" stands for its arch.
    """
    archs = [_parsed(name) for name in claims.archs]
    gpus = [gpu for gpu in gpus if backend(gpu.arch) == claims.backend]
    found: dict[Arch, Finding] = {}
    for gpu in gpus:
        if any(machine_code_runs_on(arch, gpu.arch) for arch in archs):
            continue
        if not any(runs_on(arch, gpu.arch) for arch in archs):
            found[gpu.arch] = Finding(
                "archs", f"code for {_named(gpu)}", " ".join(claims.archs), fix.format(gpu.arch)
            )
        elif driver and driver.cuda and not compat.compiles_ptx(driver.cuda, release):
            found[gpu.arch] = Finding(
                "ptx",
                f"a driver for CUDA {release}, whose PTX {_named(gpu)} depends on",
                described(driver),
                f"update the driver, or {fix.format(gpu.arch)}",
            )
    useless = {gpu.arch for gpu in gpus} == found.keys()
    return [dataclasses.replace(finding, blocks=useless) for finding in found.values()]


def _named(gpu: Gpu) -> str:
    return f"GPU {gpu.index} ({gpu.name}, {gpu.arch})"


def _parsed(name: str) -> Arch:
    try:
        return parse(name)
    except ValueError as error:
        raise TorchwheelError(f"arch list: {error}") from error
