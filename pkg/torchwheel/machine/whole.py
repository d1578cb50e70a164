"""The facts of this machine at once: all for whoever explains it, or those that a build needs."""

import dataclasses
import os
from collections.abc import Mapping

from torchwheel.arch.backend import Backend
from torchwheel.arch.devices import visible
from torchwheel.errors import TorchwheelError
from torchwheel.machine import system
from torchwheel.machine.cuda_toolkits import cuda_toolkits
from torchwheel.machine.driver import find_driver
from torchwheel.machine.model import Driver, Machine
from torchwheel.machine.rocm_toolkits import rocm_toolkits
from torchwheel.machine.torch_facts import find_torch, import_problem
from torchwheel.machine.torch_model import Absent, Torch, told
from torchwheel.toolkit.host import HostCompiler, host_compiler


def whole(environ: Mapping[str, str] = os.environ) -> Machine:
    """Gather every fact; it never fails. Seconds, if torch is not imported: it is tried."""
    torch, problem = told(find_torch())
    backend, driver = _driver(torch)
    return dataclasses.replace(
        _facts(torch, backend, driver, environ),
        torch_problem=problem or import_problem(),
        toolkits=(*cuda_toolkits(environ), *rocm_toolkits(environ)),
    )


def for_builds(torch: Torch, backend: Backend, environ: Mapping[str, str]) -> Machine:
    """What a build for `backend`'s GPUs and this torch, which is imported, is judged by."""
    toolkits = rocm_toolkits(environ) if backend == "rocm" else cuda_toolkits(environ)
    return dataclasses.replace(
        _facts(torch, backend, find_driver(backend), environ), toolkits=tuple(toolkits)
    )


def find_host(environ: Mapping[str, str] = os.environ) -> HostCompiler | Absent:
    """The C++ compiler of the host."""
    try:
        return host_compiler(environ)
    except TorchwheelError as error:
        return Absent(str(error))


def _facts(
    torch: Torch | None, backend: Backend, asked: Driver | Absent, environ: Mapping[str, str]
) -> Machine:
    """All but the toolkits."""
    driver, driver_problem = told(asked)
    host, host_problem = told(find_host(environ))
    gpus = visible(backend, environ)
    return Machine(
        python=system.python(),
        platform=system.platform_tag(),
        glibc=told(system.glibc())[0],
        torch=torch,
        driver=driver,
        driver_problem=driver_problem,
        gpus=gpus.gpus,
        gpus_problem=gpus.why,
        host=host,
        host_problem=host_problem,
    )


def _driver(torch: Torch | None) -> tuple[Backend, Driver | Absent]:
    """The driver of the GPUs that torch is built for; of any, if it is built for none."""
    if torch and torch.backend:
        return torch.backend, find_driver(torch.backend)
    nvidia, amd = find_driver("cuda"), find_driver("rocm")
    if isinstance(nvidia, Driver):
        return "cuda", nvidia
    if isinstance(amd, Driver):
        return "rocm", amd
    return "cuda", Absent(f"{nvidia.reason}; {amd.reason}")
