"""Finds the driver of the GPUs. A first call waits for what this imports."""

from torchwheel_runtime.arch.devices import Driver, DriverError, amd_driver, nvidia_driver
from torchwheel_runtime.arch.model import Backend
from torchwheel_runtime.machine.facts import Absent, SilentDriver, Torch


def find_driver(backend: Backend) -> Driver | Absent:
    """The driver of a backend's GPUs. NVIDIA's takes some ten milliseconds to answer."""
    try:
        return amd_driver() if backend == "rocm" else nvidia_driver()
    except DriverError as error:
        if error.installed:
            return SilentDriver(str(error), error.problem, error.fix)
        return Absent(str(error))


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
