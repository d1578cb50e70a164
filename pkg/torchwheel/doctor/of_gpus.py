"""Findings where there are kernels and no GPU to run them on, though there should be one."""

from collections.abc import Iterator

from torchwheel.arch.backend import Backend
from torchwheel.doctor.model import Case, Finding

_GET = {
    "cuda": "install NVIDIA's driver, or start the container with its GPUs (`--gpus all`)",
    "rocm": "install AMD's driver (amdgpu), or start the container with `--device /dev/kfd`",
}


def driver(case: Case) -> Iterator[Finding]:
    """A GPU on the bus and no driver, or a driver that does not answer."""
    machine, backend = case.machine, _backend(case)
    if backend is None or machine.driver or not machine.driver_problem:
        return
    if "does not answer" in machine.driver_problem:
        told, _, fix = machine.driver_problem.partition("; ")
        yield Finding("driver", told, fix or _GET[backend])
    elif backend in case.hardware:
        maker = "an NVIDIA" if backend == "cuda" else "an AMD"
        says = f"there is {maker} GPU, and no driver for it: {machine.driver_problem}"
        yield Finding("driver", says, _GET[backend])


def visible(case: Case) -> Iterator[Finding]:
    """A driver that works, and GPUs hidden from this process."""
    machine = case.machine
    if _backend(case) and machine.driver and not machine.gpus and machine.gpus_problem:
        variable = machine.gpus_problem.partition("=")[0]
        mend = f"`unset {variable}`" if variable.isidentifier() else "give this user the GPUs"
        yield Finding("gpus", machine.gpus_problem, mend)


def _backend(case: Case) -> Backend | None:
    """Whose GPUs torch and the package are for."""
    torch, package = case.machine.torch, case.package
    kernels = package.status is not None or any(native.backend for native in package.natives)
    return torch.backend if torch and kernels else None
