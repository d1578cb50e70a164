"""Chooses among the libraries of a universal wheel: pure functions of the machine's facts."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from torchwheel.arch.runs import machine_code_runs_on
from torchwheel.claims import Part
from torchwheel.validate.checks import load_findings
from torchwheel.versions import version_numbers

if TYPE_CHECKING:
    from torchwheel.arch.devices import Gpu
    from torchwheel.machine.facts import Driver, Torch

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
    """

    package: str
    torch: Torch
    glibc: str | None
    driver: Driver | None = None
    forced: str | None = None


@dataclasses.dataclass(frozen=True)
class KernelChoice:
    """The kernel libraries for one GPU.

    Attributes:
        gpu: the GPU.
        parts: those that serve it, the best first.
        refused: by name, why each other library was not chosen, in one line.
    """

    gpu: Gpu
    parts: tuple[Part, ...]
    refused: Mapping[str, str]

    @property
    def reason(self) -> str:
        """Why no library serves the GPU, in one line."""
        return f"no kernel library serves {self._gpu}: {self._why or 'the wheel has none'}"

    def text(self, chosen: str | None) -> str:
        """One line on the library in use, and on the others."""
        others = f"; {self._why}" if self._why else ""
        return f"{self._gpu}: {chosen}{others}" if chosen else self.reason

    @property
    def _gpu(self) -> str:
        return f"GPU {self.gpu.index} ({self.gpu.name}, {self.gpu.arch})"

    @property
    def _why(self) -> str:
        return "; ".join(f"{name}: {text}" for name, text in self.refused.items())


def choose_front_end(parts: Sequence[Part], here: Installation) -> Part | str:
    """The front end for this torch, or why there is none."""
    front_ends = [part for part in parts if part.kind == "front_end"]
    reasons = []
    for part in front_ends:
        findings = load_findings(part.needs, here.torch, here.glibc, package=here.package)
        blocking = [finding for finding in findings if finding.blocks]
        if not blocking and (part.abi == "stable" or part.old_abi == here.torch.old_abi):
            return part
        if not blocking:
            strings = "old" if part.old_abi else "new"
            reasons.append(f"{part.name} is for a torch with libstdc++'s {strings} strings")
    names = ", ".join(part.name for part in front_ends)
    return "; ".join(reasons) or f"no front end for torch {here.torch.version} among {names}"


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
        findings = load_findings(
            part.needs, here.torch, here.glibc, here.driver, (gpu,), package=here.package
        )
        blocking = [finding for finding in findings if finding.blocks]
        # Without a driver that names it, a GPU of another backend is no GPU of this library.
        if blocking:
            refused[part.name] = "; ".join(
                f"expected {finding.expected}, found {finding.found}" for finding in blocking
            )
        else:
            fitting.append(part)
    own = here.torch.built_with(fitting[0].backend) if fitting else None
    major = version_numbers(own or "")[:1]

    def rank(part: Part) -> tuple[bool, bool, tuple[int, ...]]:
        release = version_numbers(part.toolkit_version or "")
        native = any(machine_code_runs_on(arch, gpu.arch) for arch in part.archs)
        return native, release[:1] == major, release

    ranked = sorted(fitting, key=rank, reverse=True)
    for part in ranked[1:]:
        refused[part.name] = f"{ranked[0].name} fits better"
    return KernelChoice(gpu, tuple(ranked), refused)
