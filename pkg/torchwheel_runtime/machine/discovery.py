"""Finds the facts of this machine: all of them for the doctor, or those for a build."""

import dataclasses
import os
from collections.abc import Mapping

from torchwheel_runtime.arch.devices import Driver, VisibleGpus, visible_gpus
from torchwheel_runtime.arch.model import Backend
from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.machine import probe
from torchwheel_runtime.machine.facts import Absent, Machine, Torch, split_absent
from torchwheel_runtime.machine.probe import driver_for_torch, find_driver
from torchwheel_runtime.machine.toolkits import find_toolkits
from torchwheel_runtime.machine.torch import find_torch
from torchwheel_runtime.toolkit.host import HostCompiler, NoCompilerError, host_compiler


def find_machine(environ: Mapping[str, str] = os.environ) -> Machine:
    """Find every fact but whether torch can be imported. It never fails."""
    torch, problem = split_absent(find_torch())
    backend, driver = driver_for_torch(torch)
    return dataclasses.replace(
        _machine_without_toolkits(torch, backend, driver, environ),
        torch_problem=problem,
        toolkits=(*find_toolkits("cuda", environ), *find_toolkits("rocm", environ)),
    )


def find_machine_for_build(torch: Torch, backend: Backend, environ: Mapping[str, str]) -> Machine:
    """The facts that decide whether this torch's extension can be built for `backend`."""
    return dataclasses.replace(
        _machine_without_toolkits(torch, backend, find_driver(backend), environ),
        toolkits=tuple(find_toolkits(backend, environ)),
    )


def find_host(environ: Mapping[str, str] = os.environ) -> HostCompiler | Absent:
    """The C++ compiler of the host."""
    try:
        return host_compiler(environ)
    except NoCompilerError as error:  # the rules have advice of their own
        return Absent(error.reason)
    except TorchwheelError as error:
        return Absent(str(error))


def _machine_without_toolkits(
    torch: Torch | None, backend: Backend, found_driver: Driver | Absent, environ: Mapping[str, str]
) -> Machine:
    """Every fact but the toolkits."""
    driver, driver_problem = split_absent(found_driver)
    host, host_problem = split_absent(find_host(environ))
    gpus = visible_gpus(backend, environ)
    return Machine(
        python=probe.python_version(),
        platform=probe.platform_tag(),
        glibc=probe.glibc_version(),
        torch=torch,
        driver=driver,
        driver_problem=driver_problem,
        gpus=gpus.gpus,
        gpus_problem=_gpus_problem(gpus),
        host=host,
        host_problem=host_problem,
    )


def _gpus_problem(visible: VisibleGpus) -> Absent | None:
    """Why no GPU is visible; None if one is."""
    if visible.why is None:
        return None
    fix = f"`unset {visible.hidden_by}`" if visible.hidden_by else None
    return Absent(visible.why, fix)
