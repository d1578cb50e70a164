"""The doctor's last word: the first cause of what is wrong, or why all is well."""

from collections.abc import Callable, Iterator

from torchwheel.doctor import of_builds, of_fit, of_gpus, of_import, of_installation, of_libraries
from torchwheel.doctor.model import Case, Finding, Verdict
from torchwheel.machine.model import Machine
from torchwheel.shown import listed
from torchwheel.validate import override

Rule = Callable[[Case], Iterator[Finding]]

RULES: tuple[Rule, ...] = (
    of_installation.there,
    of_installation.once,
    of_installation.whole,
    of_installation.not_shadowed,
    of_installation.python,
    of_libraries.machine,
    of_fit.torch_works,
    of_import.dependency,
    of_fit.fit,
    of_libraries.absent,
    of_libraries.old,
    of_libraries.symbols,
    of_import.imported,
    of_gpus.driver,
    of_gpus.visible,
    of_builds.builds,
    of_builds.cache,
    of_builds.fallback,
)
"""In the order of cause: what comes later may be no more than a symptom of what comes before."""


def judge(case: Case) -> Verdict:
    """Ask every rule; the first that does not hold is the cause.

    Raises:
        UsageError: TORCHWHEEL_IGNORE names a rule that there is not.
    """
    ignored = override.ignored(case.environ)
    found = dict.fromkeys(finding for rule in RULES for finding in rule(case))
    findings = tuple(finding for finding in found if finding.name not in ignored)
    title = case.package.title
    if findings:
        return Verdict(findings, f"{title}: {findings[0].says}", findings[0].mend)
    return Verdict((), f"{title}: {_well(case)}")


def judge_machine(machine: Machine) -> Verdict:
    """The verdict where there is no package to judge."""
    if machine.torch_problem:
        finding = Finding("torch", machine.torch_problem, "`pip install --force-reinstall torch`")
        return Verdict((finding,), finding.says, finding.mend)
    return Verdict(
        (),
        "no package that torchwheel made is here; `torchwheel doctor PACKAGE` looks at any other",
    )


def _well(case: Case) -> str:
    """What it runs on, as far as that can be told."""
    machine, package = case.machine, case.package
    kernels = package.status is not None or any(native.backend for native in package.natives)
    if kernels and not machine.gpus:
        torch = machine.torch
        cpu = torch is not None and torch.backend is None
        why = f", and torch {torch.version} is for CPUs" if torch and cpu else ""
        so = "it runs on plain PyTorch" if package.status else "its kernels lie idle"
        return f"there is no GPU here{why}, so {so}"
    gpus = listed(dict.fromkeys(f"{gpu.name} ({gpu.arch})" for gpu in machine.gpus))
    where = f", on {gpus}" if kernels else ""
    if package.status:
        ways = listed(dict.fromkeys(one.way for one in package.status.operators))
        if ways == "fallback":
            return f"it runs on plain PyTorch, as TORCHWHEEL_MODE={package.status.mode} asks"
        if ways == "waiting":
            return f"its operators are built at their first call{where}, and nothing is in the way"
        return f"its operators are {ways}{where}"
    if package.loaded:
        return f"its native libraries are loaded{where}"
    return "it can be imported" + (", and its libraries fit" if package.natives else "")
