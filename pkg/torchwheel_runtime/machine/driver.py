"""Finds the driver of the GPUs. A first call waits for what this imports."""

from torchwheel_runtime.arch import drivers
from torchwheel_runtime.arch.model import Backend
from torchwheel_runtime.machine.facts import Absent, Driver, SilentDriver, Torch


def find_driver(backend: Backend) -> Driver | Absent:
    """The driver of a backend's GPUs. NVIDIA's takes some ten milliseconds to answer."""
    if backend == "rocm":
        release = drivers.amd_driver()
        return Driver("rocm", release) if release else Absent("no AMD GPU driver")
    try:
        driver = drivers.nvidia_driver()
    except drivers.DriverError as error:
        if error.installed:
            return SilentDriver(str(error), error.problem, error.fix)
        return Absent(str(error))
    return Driver("cuda", driver.release, driver.cuda)


def driver_for_torch(torch: Torch | None) -> tuple[Backend, Driver | Absent]:
    """The driver for torch's backend; for a torch without one, the driver of any GPU."""
    if torch and torch.backend:
        return torch.backend, find_driver(torch.backend)
    nvidia, amd = find_driver("cuda"), find_driver("rocm")
    if isinstance(nvidia, Driver):
        return "cuda", nvidia
    if isinstance(amd, Driver):
        return "rocm", amd
    return "cuda", Absent(f"{nvidia.reason}; {amd.reason}")
