"""The verdict: the first cause of what is wrong, or what the package runs on."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from torchwheel_runtime.arch.devices import Gpu
from torchwheel_runtime.doctor import machine_rules, package_rules
from torchwheel_runtime.doctor.case import Case, Verdict
from torchwheel_runtime.doctor.remedies import with_one_fix
from torchwheel_runtime.machine.facts import Machine
from torchwheel_runtime.runtime.status import ExtensionStatus
from torchwheel_runtime.text import join_names
from torchwheel_runtime.validate.findings import Finding, ignored_rules

DoctorRule = Callable[[Case], Iterator[Finding]]

RULES: tuple[DoctorRule, ...] = (
    package_rules.not_installed,
    package_rules.installed_twice,
    package_rules.incomplete,
    package_rules.shadowed,
    package_rules.wrong_python,
    package_rules.wrong_machine,
    machine_rules.broken_torch,
    package_rules.missing_dependency,
    machine_rules.mismatched_library,
    package_rules.missing_libraries,
    package_rules.old_libraries,
    package_rules.missing_symbols,
    package_rules.failed_import,
    machine_rules.missing_driver,
    machine_rules.hidden_gpus,
    machine_rules.unknown_mode,
    machine_rules.cannot_build,
    machine_rules.broken_cache,
    machine_rules.plain_pytorch,
    package_rules.unread_code,
)
"""Causes come before their symptoms."""


def judge(case: Case) -> Verdict:
    """Apply every rule; the first finding is the cause.

    Raises:
        UsageError: TORCHWHEEL_IGNORE names an unknown rule.
    """
    ignored = ignored_rules(case.environ)
    # A rule of a load and one of a build may find the same.
    unique = {(one.rule, one.says): one for rule in RULES for one in rule(case)}
    remaining = [finding for finding in unique.values() if finding.rule not in ignored]
    findings = with_one_fix(remaining, case, package_rules.libraries_to_judge(case.package))
    title = case.package.title
    return Verdict(findings, f"{title}: {findings[0].fact if findings else _healthy_text(case)}")


def judge_machine(machine: Machine) -> Verdict:
    """The verdict on a machine without a package."""
    if machine.torch_problem:
        fix = machine_rules.torch_fix(machine)
        finding = Finding("torch", str(machine.torch_problem), fix=fix)
        return Verdict((finding,), finding.fact)
    return Verdict(
        (),
        "no package that torchwheel made is here; `torchwheel doctor PACKAGE` looks at any other",
    )


def _healthy_text(case: Case) -> str:
    """What the package runs on, as far as that is known."""
    machine, package = case.machine, case.package
    no_gpu = ""
    if package.has_kernels and not machine.gpus:
        torch = machine.torch
        cpu = torch is not None and torch.backend is None
        no_gpu = "there is no GPU here"
        no_gpu += f", and torch {torch.version} is for CPUs" if torch and cpu else ""
    if package.status:
        return _status_text(package.status, machine.gpus, no_gpu)
    if no_gpu:
        return f"{no_gpu}, so its kernels lie idle"
    if package.loaded:
        where = f", on {_gpu_names(machine.gpus)}" if package.has_kernels else ""
        return f"its native libraries are loaded{where}"
    if package.info and package.info.kind == "zipped egg":
        return "it can be imported; it is a zip file (.egg), whose libraries are not judged"
    return "it can be imported" + (", and its libraries fit" if package.natives else "")


def _status_text(status: ExtensionStatus, gpus: Sequence[Gpu], no_gpu: str) -> str:
    """What the operators of an extension run on, on these GPUs."""
    ways = status.summary(no_gpu)
    if no_gpu or status.falls_back:
        return f"it runs on {ways}"
    where = f", on {_gpu_names(gpus)}"
    if all(operator.way == "waiting" for operator in status.operators):
        return f"its operators are built at their first call{where}, and nothing is in the way"
    waiting = [gpu for gpu in gpus if gpu.index in status.waiting_gpus]
    if waiting:
        served = _gpu_names(gpu for gpu in gpus if gpu not in waiting)
        there = _gpu_names(waiting)
        return f"its operators are {ways} on {served}, and built at their first call on {there}"
    return f"its operators are {ways}{where}"


def _gpu_names(gpus: Iterable[Gpu]) -> str:
    return join_names(dict.fromkeys(f"{gpu.name} ({gpu.arch})" for gpu in gpus))
