"""Applies the rules to a machine before a build."""

from collections.abc import Iterable

from torchwheel_runtime.arch.lists import VARIABLES
from torchwheel_runtime.claims import LibraryNeeds
from torchwheel_runtime.machine.facts import InstalledToolkit, Machine, Torch
from torchwheel_runtime.validate.findings import Finding
from torchwheel_runtime.validate.gpu_rules import check_code, check_driver
from torchwheel_runtime.validate.toolkit_rules import (
    check_host_compiler,
    check_toolkit,
    check_toolkit_torch,
)
from torchwheel_runtime.validate.torch_rules import check_backend, check_torch_range
from torchwheel_runtime.versions import minor_version


def build_findings(
    needs: LibraryNeeds,
    machine: Machine,
    toolkit: InstalledToolkit | None,
    *,
    package: str,
    runs_here: bool = True,
) -> tuple[Finding, ...]:
    """The rules that do not hold for a build.

    Args:
        needs: those of the library; its toolkit version does not count.
        machine: the machine's facts. Without a torch (its headers may be alone), torch's rules
            do not apply.
        toolkit: the toolkit to build with, e.g. the preferred one.
        package: the distribution's name, for the advice.
        runs_here: whether the library is for this machine, so that its driver and GPUs count.
    """
    if needs.backend is None:
        raise ValueError("a build has a backend")
    torch = machine.torch
    findings = [check_toolkit(needs.backend, toolkit, torch)]
    if torch is not None:
        findings += [
            check_torch_range(needs, torch, package),
            check_backend(needs, torch, package),
        ]
        findings += [check_toolkit_torch(needs, torch, toolkit)] if toolkit else []
    if toolkit is not None:
        findings.append(check_host_compiler(machine.host, machine.host_problem, toolkit))
        if runs_here:
            fix = f"name {{}} in {VARIABLES[needs.backend]}"
            findings.append(check_driver(toolkit.backend, toolkit.release, machine.driver))
            findings += check_code(needs, toolkit.release, machine.gpus, machine.driver, fix)
    return tuple(finding for finding in findings if finding is not None)


def preferred_toolkit(
    needs: LibraryNeeds, torch: Torch | None, toolkits: Iterable[InstalledToolkit]
) -> InstalledToolkit | None:
    """The toolkit to build with.

    A toolkit that a variable names comes first, even if it has a problem. Then come complete
    toolkits that fit torch, and among them those of torch's own release, because torch's driver
    knows their PTX.
    """
    candidates = [toolkit for toolkit in toolkits if toolkit.backend == needs.backend]
    if candidates and candidates[0].where in ("CUDA_HOME", "ROCM_PATH"):
        return candidates[0]
    fitting = [
        toolkit
        for toolkit in candidates
        if not toolkit.problem and not (torch and check_toolkit_torch(needs, torch, toolkit))
    ]
    release = minor_version((torch and torch.built_with(needs.backend)) or "")
    same = [toolkit for toolkit in fitting if torch and toolkit.release == release]
    return next(iter([*same, *fitting, *candidates]), None)
