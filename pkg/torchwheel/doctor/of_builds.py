"""Findings about what is built at first use: a compiler, a toolkit and a cache are needed then."""

import dataclasses
from collections.abc import Iterator

from torchwheel.arch.devices import Visible
from torchwheel.arch.table import Compiler
from torchwheel.arch.wanted import wanted
from torchwheel.builder.extension import STABLE_SINCE
from torchwheel.claims import Abi, Claims
from torchwheel.doctor.model import Case, Finding, Package
from torchwheel.doctor.of_fit import as_finding
from torchwheel.doctor.of_installation import again
from torchwheel.errors import TorchwheelError
from torchwheel.machine.model import FoundToolkit
from torchwheel.machine.torch_model import Torch
from torchwheel.machine.versions import numbers
from torchwheel.runtime.download import VARIABLE
from torchwheel.validate.before_build import build_findings, chosen
from torchwheel.validate.toolkit_rules import two_toolkits


def builds(case: Case) -> Iterator[Finding]:
    """Operators wait for their first call on a GPU, and could not be built for it."""
    machine, package = case.machine, case.package
    torch = machine.torch
    if torch is None or torch.backend is None or not machine.gpus or not _waiting(package):
        return
    claims = Claims(variant="", abi=_abi(torch), torch="", backend=torch.backend)
    toolkit = chosen(claims, torch, machine.toolkits)
    downloads = case.environ.get(VARIABLE) == "1" and torch.cuda
    if downloads and (toolkit is None or toolkit.problem):
        return
    try:
        claims = dataclasses.replace(claims, archs=_archs(case, toolkit))
    except TorchwheelError as error:
        mend = "set CUDA_HOME to a toolkit that can compile for it"
        yield Finding("archs", str(error), mend)
        return
    for rule in build_findings(claims, machine, toolkit, package=package.name):
        yield as_finding(rule)
    for rule in two_toolkits(machine.toolkits):
        yield as_finding(rule)


def cache(case: Case) -> Iterator[Finding]:
    """What is built could not be kept, or was kept and is bent."""
    if not _waiting(case.package):
        return
    if problem := case.cache.problem:
        yield Finding(
            "cache",
            f"what is built cannot be kept, so each process builds anew: {problem}",
            "`export TORCHWHEEL_CACHE=FOLDER`, a folder of yours that can be written",
        )
    for line in case.cache.corrupt:
        if line.startswith(f"{case.package.module}."):
            yield Finding(
                "cache", f"a library of the cache is corrupt: {line}", "`torchwheel cache prune`"
            )


def fallback(case: Case) -> Iterator[Finding]:
    """Operators run on plain PyTorch, for a reason that no other rule has."""
    status = case.package.status
    for operator in status.operators if status else ():
        if operator.way == "fallback" and any(refusal.fault for refusal in operator.refusals):
            says = f"{operator.operator} runs on plain PyTorch: {operator.reason}"
            yield Finding("fallback", says, again(case.package))


def _waiting(package: Package) -> bool:
    status = package.status
    return status is not None and any(one.way == "waiting" for one in status.operators)


def _abi(torch: Torch) -> Abi:
    """The flavour that is built where an extension has both."""
    return "stable" if numbers(torch.minor) >= numbers(STABLE_SINCE) else "aten"


def _archs(case: Case, toolkit: FoundToolkit | None) -> tuple[str, ...]:
    """What it would be built for."""
    if toolkit is None or not toolkit.release:
        return ()
    found = wanted(
        Compiler(toolkit.backend, toolkit.release),
        case.environ,
        for_this_machine=True,
        look=lambda _, __: Visible(case.machine.gpus),
    )
    return tuple(map(str, found.archs))
