"""The facts of an environment that decide which wheel fits: another Python's, or this one's."""

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path

from packaging.utils import NormalizedName, canonicalize_name

from torchwheel.interpreters import find_interpreter, running_interpreter
from torchwheel_runtime.arch.devices import visible_gpus
from torchwheel_runtime.machine import probe
from torchwheel_runtime.machine.facts import Machine, split_absent
from torchwheel_runtime.machine.probe import driver_for_torch
from torchwheel_runtime.machine.torch import read_torch


@dataclasses.dataclass(frozen=True, kw_only=True)
class TargetEnvironment(Machine):
    """An environment that a wheel is chosen for, on this machine.

    Attributes:
        program: its Python.
        implementation: e.g. "CPython".
        tags: the tags of wheels that it takes, the best first.
        markers: the variables of environment markers.
        installed: versions of the installed distributions, by name.
    """

    program: Path
    implementation: str
    tags: tuple[str, ...]
    markers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    installed: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def versions(self) -> Mapping[NormalizedName, str]:
        """Versions of the installed distributions, by their normalised names."""
        return {canonicalize_name(name): version for name, version in self.installed.items()}


def find_environment(python: str | None) -> TargetEnvironment:
    """The facts of the environment of a Python ("3.12" or a path), by default the running one.

    Raises:
        UsageError: there is none, it is no Python, or an old one.
    """
    asked = find_interpreter(python) if python else running_interpreter()
    torch = split_absent(read_torch(asked.torch.parent))[0] if asked.torch else None
    backend, answered = driver_for_torch(torch)
    driver, driver_problem = split_absent(answered)
    return TargetEnvironment(
        python=asked.version,
        platform=asked.platform,
        glibc=probe.glibc_version(),
        torch=torch,
        driver=driver,
        driver_problem=driver_problem,
        gpus=visible_gpus(backend, os.environ).gpus,
        program=asked.path,
        implementation=asked.implementation,
        tags=asked.tags,
        markers=asked.markers,
        installed=asked.installed,
    )
