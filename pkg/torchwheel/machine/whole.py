"""All the facts of this machine at once, for whoever explains it."""

import os
from collections.abc import Mapping
from typing import TypeVar

from torchwheel.arch.backend import Backend
from torchwheel.arch.devices import visible
from torchwheel.errors import TorchwheelError
from torchwheel.machine import system
from torchwheel.machine.cuda_toolkits import cuda_toolkits
from torchwheel.machine.driver import find_driver
from torchwheel.machine.model import Driver, Machine
from torchwheel.machine.rocm_toolkits import rocm_toolkits
from torchwheel.machine.torch_facts import find_torch, import_problem
from torchwheel.machine.torch_model import Absent, Torch
from torchwheel.toolkit.host import HostCompiler, host_compiler

_Fact = TypeVar("_Fact")


def whole(environ: Mapping[str, str] = os.environ) -> Machine:
    """Gather every fact; it never fails. Seconds, if torch is not imported: it is tried."""
    torch, torch_problem = _told(find_torch())
    backend, asked = _driver(torch)
    driver, driver_problem = _told(asked)
    host, host_problem = _told(find_host(environ))
    gpus = visible(backend, environ)
    return Machine(
        python=system.python(),
        platform=system.platform_tag(),
        glibc=_told(system.glibc())[0],
        torch=torch,
        torch_problem=torch_problem or import_problem(),
        driver=driver,
        driver_problem=driver_problem,
        gpus=gpus.gpus,
        gpus_problem=gpus.why,
        host=host,
        host_problem=host_problem,
        toolkits=(*cuda_toolkits(environ), *rocm_toolkits(environ)),
    )


def find_host(environ: Mapping[str, str] = os.environ) -> HostCompiler | Absent:
    """The C++ compiler of the host."""
    try:
        return host_compiler(environ)
    except TorchwheelError as error:
        return Absent(str(error))


def _driver(torch: Torch | None) -> tuple[Backend, Driver | Absent]:
    """The driver of the GPUs that torch is built for; of any, if it is built for none."""
    if torch and (torch.cuda or torch.hip):
        backend: Backend = "rocm" if torch.hip else "cuda"
        return backend, find_driver(backend)
    nvidia, amd = find_driver("cuda"), find_driver("rocm")
    if isinstance(nvidia, Driver):
        return "cuda", nvidia
    if isinstance(amd, Driver):
        return "rocm", amd
    return "cuda", Absent(f"{nvidia.reason}; {amd.reason}")


def _told(found: _Fact | Absent) -> tuple[_Fact | None, str | None]:
    """A fact, or the reason."""
    return (None, found.reason) if isinstance(found, Absent) else (found, None)
