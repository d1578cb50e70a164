"""The GPU driver, asked without starting CUDA or HIP."""

from torchwheel.arch import kfd, nvml
from torchwheel.arch.backend import Backend
from torchwheel.errors import TorchwheelError
from torchwheel.machine.model import Driver
from torchwheel.machine.torch_model import Absent


def find_driver(backend: Backend) -> Driver | Absent:
    """The driver of NVIDIA's GPUs or of AMD's; NVIDIA's takes some ten milliseconds to ask."""
    if backend == "rocm":
        release = kfd.driver()
        return Driver("rocm", release) if release else Absent("no AMD GPU driver")
    try:
        told = nvml.driver()
    except TorchwheelError as error:
        return Absent(str(error))
    return Driver("cuda", told.release, told.cuda)
