"""Chooses among the libraries of a universal wheel: pure functions of the machine's facts."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from torchwheel_runtime.arch.runs import machine_code_runs_on, runs_on
from torchwheel_runtime.claims import Part
from torchwheel_runtime.text import join_names
from torchwheel_runtime.validate.at_load import describe_gpu, load_findings
from torchwheel_runtime.versions import version_numbers

if TYPE_CHECKING:
    from torchwheel_runtime.arch.devices import Driver, Gpu
    from torchwheel_runtime.builder.extension import Operator
    from torchwheel_runtime.loadable import LoadableFile
    from torchwheel_runtime.machine.facts import Torch
    from torchwheel_runtime.validate.findings import Finding

LIBRARY_VARIABLE = "TORCHWHEEL_LIBRARY"
"""Names the kernel library to use, e.g. "cu124"; without it the best one is used."""


@dataclasses.dataclass(frozen=True)
class Installation:
    """What decides which libraries fit, beside the GPUs.

    Attributes:
        package: the distribution's name, for advice.
        torch: the torch in use.
        glibc: the version of the C library; None if it is another one.
        driver: the GPUs' driver, if one was found.
        forced: the name of the only kernel library that may be used; None for any.
        ignored: the rules that TORCHWHEEL_IGNORE names.
    """

    package: str
    torch: Torch
    glibc: str | None
    driver: Driver | None = None
    forced: str | None = None
    ignored: frozenset[str] = frozenset()

    def findings(self, part: Part, gpus: Sequence[Gpu] = ()) -> tuple[Finding, ...]:
        """The rules that do not hold for a part. The driver counts where GPUs do."""
        driver, package = self.driver if gpus else None, self.package
        return load_findings(part.needs, self.torch, self.glibc, driver, gpus, package=package)

    def blocking(self, part: Part, gpus: Sequence[Gpu] = ()) -> list[Finding]:
        """The findings that keep a part from being used."""
        findings = self.findings(part, gpus)
        return [one for one in findings if one.blocks and one.rule not in self.ignored]


@dataclasses.dataclass(frozen=True)
class KernelChoice:
    """The kernel libraries for one GPU.

    Attributes:
        gpu: the GPU.
        parts: those that have code for it and fit torch and the driver, the best first.
        refused: by name, why each other library is not used; also one that fits and proved unfit.
        used: the library in use, one of `parts`; None until one is opened, and if none can be used.
        file: the open file of that library.
    """

    gpu: Gpu
    parts: tuple[Part, ...]
    refused: Mapping[str, str]
    used: Part | None = None
    file: LoadableFile | None = None

    @property
    def others(self) -> Mapping[str, str]:
        """Why each library but the one in use is not used, by name."""
        used = self.used.name if self.used else None
        why = f"{used} fits better" if used else "the front end takes none for this GPU"
        reasons = {**{part.name: why for part in self.parts}, **self.refused}
        return {name: reason for name, reason in reasons.items() if name != used}

    @property
    def reason(self) -> str:
        """Why no library serves the GPU, in one line."""
        why = reasons_text(self.others) or "the wheel has none"
        return f"no kernel library serves {describe_gpu(self.gpu)}: {why}"


def reasons_text(reasons: Mapping[str, str]) -> str:
    """Reasons in one line; names with the same reason stand together."""
    names: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        names.setdefault(reason, []).append(name)
    return "; ".join(f"{join_names(alike)}: {reason}" for reason, alike in names.items())


def has_code(part: Part, operator: Operator, gpu: Gpu) -> bool:
    """Whether a kernel library has code of an operator family for a GPU."""
    return any(runs_on(arch, gpu.arch) for arch in part.archs if operator.archs.takes(arch))


def choose_front_end(parts: Sequence[Part], here: Installation) -> Part | str:
    """The front end for this torch; if there is none, why, and what to do."""
    front_ends = [part for part in parts if part.kind == "front_end"]
    problem = _no_front_end(front_ends, here)
    for part in front_ends:
        if here.blocking(part):
            continue
        if part.abi == "stable" or part.old_abi == here.torch.old_abi:
            return part
        needed, found = ("old", "new") if part.old_abi else ("new", "old")
        problem = (
            f"front end {part.name}: expected a torch with libstdc++'s {needed} strings, found "
            f"torch {here.torch.version} with the {found} ones; install another build of torch"
        )
    return problem


def _no_front_end(front_ends: Sequence[Part], here: Installation) -> str:
    """One line: the torch releases that there are front ends for, the one found, and the fix."""
    releases = sorted((part.torch_release or "" for part in front_ends), key=version_numbers)
    found = f"found torch {here.torch.version}"
    if not releases:
        return f"front end: expected one, found none in {here.package}; reinstall it"
    if version_numbers(here.torch.version) < version_numbers(releases[0]):
        oldest = releases[0]
        return (
            f"front end: expected torch {oldest} or later, {found}; `pip install 'torch>={oldest}'`"
        )
    minors = {part.torch_release for part in front_ends if part.abi == "aten"}
    floors = [f"{part.torch_release} or later" for part in front_ends if part.abi == "stable"]
    names = join_names([*(release for release in releases if release in minors), *floors])
    return f"front end: expected torch {names}, {found}; install one of these"


def choose_kernels(parts: Sequence[Part], here: Installation, gpu: Gpu) -> KernelChoice:
    """The kernel libraries for a GPU: machine code before PTX, torch's own major release, newest.

    A library that is forced by name is the only candidate.
    """
    fitting: list[Part] = []
    refused: dict[str, str] = {}
    for part in parts:
        if part.kind != "kernels":
            continue
        if here.forced not in (None, part.name):
            refused[part.name] = f"{LIBRARY_VARIABLE}={here.forced}"
            continue
        if blocking := here.blocking(part, (gpu,)):
            facts = (f"expected {one.expected}, found {one.found}" for one in blocking)
            refused[part.name] = "; ".join(facts)
        else:
            fitting.append(part)
    own = here.torch.built_with(fitting[0].backend) if fitting else None
    major = version_numbers(own or "")[:1]

    def rank(part: Part) -> tuple[bool, bool, tuple[int, ...]]:
        release = version_numbers(part.toolkit_version or "")
        native = any(machine_code_runs_on(arch, gpu.arch) for arch in part.archs)
        return native, release[:1] == major, release

    return KernelChoice(gpu, tuple(sorted(fitting, key=rank, reverse=True)), refused)
