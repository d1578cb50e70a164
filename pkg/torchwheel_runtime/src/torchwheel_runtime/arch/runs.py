"""Decides which GPUs run the code of which archs."""

import functools
from collections.abc import Iterable, Mapping

from torchwheel_runtime import data
from torchwheel_runtime.arch.model import Arch, CudaArch, RocmArch
from torchwheel_runtime.versions import version_numbers


def runs_on(arch: Arch, device: Arch) -> bool:
    """Whether a GPU of arch `device` runs code for `arch`, its PTX included."""
    return machine_code_runs_on(arch, device) or (arch.ptx and ptx_runs_on(arch, device))


def machine_code_runs_on(arch: Arch, device: Arch) -> bool:
    """Whether a GPU of arch `device` runs machine code for `arch`; PTX does not count.

    NVIDIA: code runs on the same major version from its minor version on. Suffix "f" means a
    family, which is the major version today. Code with suffix "a" runs on that arch only.
    AMD: code runs on its own processor, or on the processors of a generic target. Both sides must
    agree about a feature that both name.
    """
    if isinstance(arch, CudaArch) and isinstance(device, CudaArch):
        code, gpu = number_of(arch), number_of(device)
        if arch.suffix == "a" or not _integrated().isdisjoint({code, gpu}):
            return code == gpu
        return code[0] == gpu[0] and code[1] <= gpu[1]
    if isinstance(arch, RocmArch) and isinstance(device, RocmArch):
        has = {feature[:-1]: feature for feature in device.features}
        return device.name in processors(arch) and all(
            has.get(feature[:-1], feature) == feature for feature in arch.features
        )
    return False


def processors(arch: RocmArch) -> tuple[str, ...]:
    """The names of the processors that run code of an AMD arch: several for a generic target."""
    return _generic().get(arch.name, (arch.name,))


def ptx_runs_on(arch: Arch, device: Arch) -> bool:
    """Whether a driver can compile PTX of `arch` for `device`: as new or newer, if no suffix."""
    if not isinstance(arch, CudaArch) or not isinstance(device, CudaArch):
        return False
    if arch.suffix:
        return machine_code_runs_on(arch, device)
    return number_of(arch) <= number_of(device)


def as_numbered(arch: CudaArch, archs: Iterable[Arch]) -> CudaArch:
    """The arch by its number among those of a toolkit: "10.1" for "11.0" before CUDA 13."""
    wanted = (number_of(arch), arch.suffix)
    nvidia = (one for one in archs if isinstance(one, CudaArch))
    return next((one for one in nvidia if (number_of(one), one.suffix) == wanted), arch)


def number_of(arch: CudaArch) -> tuple[int, ...]:
    """Major and minor version in the numbering of today's toolkits: (11, 0) for "10.1" too."""
    return _renamed().get((arch.major, arch.minor), (arch.major, arch.minor))


@functools.cache
def _renamed() -> Mapping[tuple[int, ...], tuple[int, ...]]:
    table = data.read("arch_runs.json")["cuda"]["renamed"]
    return {version_numbers(old): version_numbers(new) for old, new in table.items()}


@functools.cache
def _integrated() -> frozenset[tuple[int, ...]]:
    return frozenset(map(version_numbers, data.read("arch_runs.json")["cuda"]["integrated"]))


@functools.cache
def _generic() -> Mapping[str, tuple[str, ...]]:
    table = data.read("arch_runs.json")["rocm"]["generic"]
    return {target: tuple(processors) for target, processors in table.items()}
