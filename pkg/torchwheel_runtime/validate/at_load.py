"""Applies the rules when a library is loaded. A first call waits for what this imports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torchwheel_runtime.validate.gpu_rules import check_code, check_driver, check_glibc
from torchwheel_runtime.validate.torch_rules import (
    check_backend,
    check_built_with,
    check_torch_range,
)

if TYPE_CHECKING:
    from torchwheel_runtime.arch.devices import Driver, Gpu
    from torchwheel_runtime.claims import LibraryNeeds
    from torchwheel_runtime.machine.facts import Torch
    from torchwheel_runtime.validate.findings import Finding

_OTHER_WHEEL = "install a wheel with code for {} (without one, the first call builds it)"


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
    """The rules that do not hold when a library is loaded, the gravest first.

    The facts of torch and of the C library suffice and cost microseconds. To ask for a driver and
    for GPUs takes milliseconds and must not happen before a fork: the doctor does it.

    Args:
        needs: those of the library.
        torch: None if there is none.
        glibc: the version of glibc; None if the C library is another.
        driver: the GPUs' driver, if the caller has asked for it.
        gpus: the visible GPUs, if the caller has asked for them.
        package: the distribution's name, for the advice.
        glibc_floor: the oldest glibc of the wheel's tag (`gpu_rules.tag_floor`), if it is known.
    """
    findings = [
        check_glibc(glibc_floor, glibc, package),
        check_torch_range(needs, torch, package),
    ]
    if torch is not None:
        findings += [check_backend(needs, torch, package), check_built_with(needs, torch, package)]
    if needs.backend and needs.toolkit_version and (driver or gpus):
        findings.append(check_driver(needs.backend, needs.toolkit_version, driver))
        findings += check_code(needs, needs.toolkit_version, gpus, driver, _OTHER_WHEEL)
    return tuple(finding for finding in findings if finding is not None)
