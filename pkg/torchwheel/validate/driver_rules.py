"""Rules about the driver. AMD's serves every ROCm that is here to build with."""

from torchwheel.arch.backend import Backend
from torchwheel.machine.model import Driver
from torchwheel.machine.versions import numbers
from torchwheel.validate import compat
from torchwheel.validate.finding import Finding


def driver(backend: Backend, release: str, here: Driver | None) -> Finding | None:
    """NVIDIA's driver serves the toolkit's release: each serves every minor of a CUDA major.

    A machine without a driver has no GPU, which is no fault. A compatibility package makes an old
    driver serve a newer CUDA than its own.
    """
    if backend != "cuda" or here is None or here.backend != "cuda":
        return None
    known = compat.driver_floor(release)
    if known is None:  # a newer CUDA than the table
        return None
    floor, older = known
    if numbers(here.version) >= numbers(floor) or numbers(here.cuda or "") > numbers(older):
        return None
    major = release.partition(".")[0]
    return Finding(
        "driver",
        f"NVIDIA's driver {floor} or later, which CUDA {major} needs",
        described(here),
        f"update the driver, or on a data-centre GPU `apt-get install cuda-compat-{major}-0`",
    )


def described(here: Driver) -> str:
    """E.g. "driver 580.95.05, for CUDA up to 13.0"."""
    return f"driver {here.version}" + (f", for CUDA up to {here.cuda}" if here.cuda else "")
