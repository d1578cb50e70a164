"""Finds the facts of this machine: all of them for the doctor, or those for a build."""

import dataclasses
import os
from collections.abc import Iterable, Mapping

from torchwheel_runtime.arch.devices import Driver, visible_gpus
from torchwheel_runtime.arch.model import Backend
from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.machine import probe
from torchwheel_runtime.machine.facts import Absent, Machine, Torch, split_absent
from torchwheel_runtime.machine.probe import driver_for_torch, find_driver
from torchwheel_runtime.machine.toolkits import find_toolkits
from torchwheel_runtime.machine.torch import find_torch
from torchwheel_runtime.toolkit.host import HostCompiler, NoCompilerError, host_compiler


def find_machine() -> Machine:
    """Find every fact but whether torch can be imported. It never fails."""
    torch, problem = split_absent(find_torch())
    backend, driver = driver_for_torch(torch)
    machine = _find_machine(torch, backend, driver, ("cuda", "rocm"), os.environ)
    return dataclasses.replace(machine, torch_problem=problem)


def find_machine_for_build(torch: Torch, backend: Backend, environ: Mapping[str, str]) -> Machine:
    """The facts that decide whether this torch's extension can be built for `backend`."""
    return _find_machine(torch, backend, find_driver(backend), (backend,), environ)


def find_host(environ: Mapping[str, str]) -> HostCompiler | Absent:
    """The C++ compiler of the host."""
    try:
        return host_compiler(environ)
    except NoCompilerError as error:  # the rules have advice of their own
        return Absent(error.reason)
    except TorchwheelError as error:
        return Absent(str(error))


def _find_machine(
    torch: Torch | None,
    backend: Backend,
    found_driver: Driver | Absent,
    toolkits: Iterable[Backend],
    environ: Mapping[str, str],
) -> Machine:
    driver, driver_problem = split_absent(found_driver)
    host, host_problem = split_absent(find_host(environ))
    gpus = visible_gpus(backend, environ)
    fix = f"`unset {gpus.hidden_by}`" if gpus.hidden_by else None
    return Machine(
        python=probe.python_version(),
        platform=probe.platform_tag(),
        glibc=probe.glibc_version(),
        torch=torch,
        driver=driver,
        driver_problem=driver_problem,
        gpus=gpus.gpus,
        gpus_problem=Absent(gpus.why, fix) if gpus.why else None,
        host=host,
        host_problem=host_problem,
        toolkits=tuple(found for one in toolkits for found in find_toolkits(one, environ)),
    )
