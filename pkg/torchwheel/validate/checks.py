"""The checks before a build and at load: rules applied to the facts of the machine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from torchwheel.arch.lists import VARIABLES
from torchwheel.claims import LibraryNeeds
from torchwheel.machine.facts import InstalledToolkit, Machine, Torch
from torchwheel.validate.findings import Finding
from torchwheel.validate.gpu_rules import code, driver
from torchwheel.validate.gpu_rules import glibc as glibc_rule
from torchwheel.validate.toolkit_rules import host_compiler, toolkit, with_torch
from torchwheel.validate.torch_rules import backend, built_with, torch_range
from torchwheel.versions import minor_version


def build_findings(
    needs: LibraryNeeds,
    machine: Machine,
    found: InstalledToolkit | None,
    *,
    package: str,
    runs_here: bool = True,
) -> tuple[Finding, ...]:
    """Every rule that does not hold.

    Args:
        needs: those of the library; its toolkit version does not count.
        machine: the facts. Without a torch, as where its headers alone are, torch's rules rest.
        found: the toolkit to build with, e.g. `chosen`'s.
        package: the distribution's name, for what to do.
        runs_here: whether the library is for this machine: its driver and GPUs then count.
    """
    if needs.backend is None:
        raise ValueError("a build has a backend")
    torch = machine.torch
    findings = [toolkit(needs.backend, found, torch)]
    if torch is not None:
        findings += [torch_range(needs, torch, package), backend(needs, torch, package)]
        findings += [with_torch(needs, torch, found)] if found else []
    if found is not None:
        findings.append(host_compiler(machine.host, machine.host_problem, found))
        if runs_here:
            fix = f"name {{}} in {VARIABLES[needs.backend]}"
            findings.append(driver(found.backend, found.release, machine.driver))
            findings += code(needs, found.release, machine.gpus, machine.driver, fix)
    return tuple(finding for finding in findings if finding is not None)


def preferred_toolkit(
    needs: LibraryNeeds, torch: Torch | None, toolkits: Iterable[InstalledToolkit]
) -> InstalledToolkit | None:
    """The toolkit to build with.

    One that a variable names is taken, right or wrong. Else the first that is whole and goes with
    torch; before it one of torch's very release, whose PTX torch's driver knows.
    """
    mine = [one for one in toolkits if one.backend == needs.backend]
    if mine and mine[0].where in ("CUDA_HOME", "ROCM_PATH"):
        return mine[0]
    good = [
        one for one in mine if not one.problem and not (torch and with_torch(needs, torch, one))
    ]
    torchs = minor_version((torch and torch.built_with(needs.backend)) or "")
    same = [one for one in good if torch and one.release == torchs]
    return next(iter([*same, *good, *mine]), None)


if TYPE_CHECKING:
    from torchwheel.arch.devices import Gpu
    from torchwheel.machine.facts import Driver

_BUILT_HERE = "have it built here for {}: set TORCHWHEEL_MODE=jit"


def load_findings(
    needs: LibraryNeeds,
    torch: Torch | None,
    glibc: str | None,
    driver: Driver | None = None,
    gpus: Sequence[Gpu] = (),
    *,
    package: str,
    glibc_floor: str | None = None,
) -> tuple[Finding, ...]:
    """Every rule that does not hold, the gravest first.

    Torch's and the C library's facts are enough, and cost microseconds; a driver and GPUs, which
    take milliseconds to ask and must not be asked before a fork, are for the doctor.

    Args:
        needs: those of the library.
        torch: None where there is none.
        glibc: the C library's version, None where it is another.
        driver: that of the GPUs, if it was asked.
        gpus: the visible ones, if they were asked.
        package: the distribution's name, for what to do.
        glibc_floor: the oldest glibc of the wheel's tag (`glibc_rule.floor`), if it is known.
    """
    found = [
        glibc_rule(glibc_floor, glibc, package),
        torch_range(needs, torch, package),
    ]
    if torch is not None:
        found += [backend(needs, torch, package), built_with(needs, torch, package)]
    if needs.backend and needs.toolkit_version and (driver or gpus):
        # Not for a plain import: they read more.
        from torchwheel.validate.gpu_rules import code  # noqa: PLC0415
        from torchwheel.validate.gpu_rules import driver as driver_rule  # noqa: PLC0415

        found.append(driver_rule(needs.backend, needs.toolkit_version, driver))
        found += code(needs, needs.toolkit_version, gpus, driver, _BUILT_HERE)
    return tuple(finding for finding in found if finding is not None)
