"""Can a library be built here, and then run here: asked before anything is compiled."""

from collections.abc import Iterable

from torchwheel.arch.wanted import VARIABLES
from torchwheel.claims import Claims
from torchwheel.machine.model import FoundToolkit, Machine
from torchwheel.machine.torch_model import Torch
from torchwheel.machine.versions import minor
from torchwheel.validate.arch_rules import code
from torchwheel.validate.driver_rules import driver
from torchwheel.validate.finding import Finding
from torchwheel.validate.toolkit_rules import host_compiler, toolkit, with_torch
from torchwheel.validate.torch_rules import backend, torch_range


def build_findings(
    claims: Claims,
    machine: Machine,
    found: FoundToolkit | None,
    *,
    package: str,
    runs_here: bool = True,
) -> tuple[Finding, ...]:
    """Every rule that does not hold.

    Args:
        claims: what the library will say of itself; its toolkit is not looked at.
        machine: the facts. Without a torch, as where its headers alone are, torch's rules rest.
        found: the toolkit to build with, e.g. `chosen`'s.
        package: the distribution's name, for what to do.
        runs_here: whether the library is for this machine: its driver and GPUs then count.
    """
    if claims.backend is None:
        raise ValueError("a build has a backend")
    torch = machine.torch
    findings = [toolkit(claims.backend, found, torch)]
    if torch is not None:
        findings += [torch_range(claims, torch, package), backend(claims, torch, package)]
        findings += [with_torch(claims, torch, found)] if found else []
    if found is not None:
        findings.append(host_compiler(machine.host, machine.host_problem, found))
        if runs_here:
            fix = f"name {{}} in {VARIABLES[claims.backend]}"
            findings.append(driver(found.backend, found.release, machine.driver))
            findings += code(claims, found.release, machine.gpus, machine.driver, fix)
    return tuple(finding for finding in findings if finding is not None)


def chosen(
    claims: Claims, torch: Torch | None, toolkits: Iterable[FoundToolkit]
) -> FoundToolkit | None:
    """The toolkit to build with.

    One that a variable names is taken, right or wrong. Else the first that is whole and goes with
    torch; before it one of torch's very release, whose PTX torch's driver knows.
    """
    mine = [one for one in toolkits if one.backend == claims.backend]
    if mine and mine[0].where in ("CUDA_HOME", "ROCM_PATH"):
        return mine[0]
    good = [
        one for one in mine if not one.problem and not (torch and with_torch(claims, torch, one))
    ]
    torchs = minor((torch and torch.built_with(claims.backend)) or "")
    same = [one for one in good if torch and one.release == torchs]
    return next(iter([*same, *good, *mine]), None)
