"""Does an installed library fit this process: asked before it is loaded, so it is cheap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torchwheel.claims import Claims
from torchwheel.machine.torch_model import Torch
from torchwheel.validate.finding import Finding
from torchwheel.validate.glibc_rule import glibc as glibc_rule
from torchwheel.validate.torch_rules import backend, built_with, torch_range

if TYPE_CHECKING:
    from torchwheel.arch.devices import Gpu
    from torchwheel.machine.model import Driver

_BUILT_HERE = "have it built here for {}: set TORCHWHEEL_MODE=jit"


def load_findings(
    claims: Claims,
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
        claims: what the wheel says of itself.
        torch: None where there is none.
        glibc: the C library's version, None where it is another.
        driver: that of the GPUs, if it was asked.
        gpus: the visible ones, if they were asked.
        package: the distribution's name, for what to do.
        glibc_floor: the oldest glibc of the wheel's tag (`glibc_rule.floor`), if it is known.
    """
    found = [
        glibc_rule(glibc_floor, glibc, package),
        torch_range(claims, torch, package),
    ]
    if torch is not None:
        found += [backend(claims, torch, package), built_with(claims, torch, package)]
    if claims.backend and claims.toolkit and (driver or gpus):
        # Not for a plain import: they read more.
        from torchwheel.validate.arch_rules import code  # noqa: PLC0415
        from torchwheel.validate.driver_rules import driver as driver_rule  # noqa: PLC0415

        found.append(driver_rule(claims.backend, claims.toolkit, driver))
        found += code(claims, claims.toolkit, gpus, driver, _BUILT_HERE)
    return tuple(finding for finding in found if finding is not None)
