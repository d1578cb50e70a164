"""Which GPU runs the code of which arch: the one place that says so."""

import functools
from collections.abc import Mapping

from torchwheel import data
from torchwheel.arch.model import Arch, CudaArch, RocmArch
from torchwheel.versions import version_numbers


def runs_on(arch: Arch, device: Arch) -> bool:
    """Whether what is compiled for `arch`, its PTX included, runs on a GPU that is `device`."""
    with_ptx = isinstance(arch, CudaArch) and arch.ptx
    return machine_code_runs_on(arch, device) or (with_ptx and ptx_runs_on(arch, device))


def machine_code_runs_on(arch: Arch, device: Arch) -> bool:
    """Whether machine code for `arch`, PTX aside, runs on a GPU that is `device`.

    NVIDIA's runs on its major version from its minor version on; with suffix "f" too, which
    names a family that is the major version today; with suffix "a" on its own alone. AMD's runs
    on its own processor, or on those of a generic target, with the features it names; a feature
    that either side leaves open is no obstacle.
    """
    if isinstance(arch, CudaArch) and isinstance(device, CudaArch):
        code, gpu = _number(arch), _number(device)
        if arch.suffix == "a" or not _integrated().isdisjoint({code, gpu}):
            return code == gpu
        return code[0] == gpu[0] and code[1] <= gpu[1]
    if isinstance(arch, RocmArch) and isinstance(device, RocmArch):
        processors = _generic().get(arch.name, (arch.name,))
        has = {feature[:-1]: feature for feature in device.features}
        return device.name in processors and all(
            has.get(feature[:-1], feature) == feature for feature in arch.features
        )
    return False


def ptx_runs_on(arch: Arch, device: Arch) -> bool:
    """Whether a driver can compile PTX for `arch` for `device`: as new or newer, if no suffix."""
    if not isinstance(arch, CudaArch) or not isinstance(device, CudaArch):
        return False
    if arch.suffix:
        return machine_code_runs_on(arch, device)
    return _number(arch) <= _number(device)


def _number(arch: CudaArch) -> tuple[int, ...]:
    """Major and minor version as today's toolkits number them."""
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
