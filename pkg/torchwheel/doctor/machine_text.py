"""The machine, as the doctor prints it."""

import sys
from collections.abc import Iterator, Mapping

from torchwheel.arch.backend import BRANDS
from torchwheel.doctor.caches import Cache
from torchwheel.doctor.rows import row, rows
from torchwheel.machine.model import Machine
from torchwheel.machine.torch_model import Torch
from torchwheel.shown import listed
from torchwheel.table import size_text


def machine_text(machine: Machine, variables: Mapping[str, str], cache: Cache) -> str:
    """The machine: a line each, one below the other where there are several."""
    told = [f"{name}={value}" for name, value in variables.items()]
    lines = [
        *row("Python", f"{machine.python}, {sys.executable}"),
        *row("system", f"{machine.platform}, {_glibc(machine)}"),
        *row("torch", _torch(machine)),
        *row("driver", _driver(machine)),
        *rows("GPU", _gpus(machine)),
        *row("compiler", _compiler(machine)),
        *rows("toolkit", _toolkits(machine)),
        *row("cache", _cache(cache)),
        *(rows("variables", told) if told else ()),
    ]
    return "\n".join(lines)


def _glibc(machine: Machine) -> str:
    return f"glibc {machine.glibc}" if machine.glibc else "a C library that is not glibc"


def _torch(machine: Machine) -> str:
    torch, problem = machine.torch, machine.torch_problem
    if torch is None:
        return f"none: {problem}"
    told = f"{torch.version} ({_built(torch)}), {torch.folder}"
    return f"{told}; {problem}" if problem else told


def _built(torch: Torch) -> str:
    if torch.hip:
        return f"HIP {torch.hip}"
    return f"CUDA {torch.cuda}" if torch.cuda else "CPU only"


def _driver(machine: Machine) -> str:
    driver = machine.driver
    if driver is None:
        return f"none: {machine.driver_problem}"
    return f"{driver.version}, serves CUDA {driver.cuda}" if driver.cuda else driver.version


def _gpus(machine: Machine) -> list[str]:
    if machine.gpus:
        return [f"{gpu.index}: {gpu.name}, {gpu.arch}" for gpu in machine.gpus]
    return [f"none: {machine.gpus_problem}" if machine.driver else "none"]


def _compiler(machine: Machine) -> str:
    host = machine.host
    return f"{host.family} {host.version}, {host.path}" if host else f"none: {machine.host_problem}"


def _toolkits(machine: Machine) -> Iterator[str]:
    """Those of one place and kind in one line, unless something is wrong with one."""
    whole: dict[str, list[str]] = {}
    for one in machine.toolkits:
        named = f"{BRANDS[one.backend]} {one.release}".strip()
        if one.problem:
            yield f"{named}, {one.root} ({one.where}): {one.problem}"
        else:
            releases = whole.setdefault(one.where, [str(one.root)])
            releases += [] if named in releases else [named]
    for where, (root, *releases) in whole.items():
        yield f"{listed(releases)} ({where}{f', {root}' if len(releases) == 1 else ''})"


def _cache(cache: Cache) -> str:
    parts = listed(f"{name} {size_text(size)}" for name, size in cache.sizes.items())
    told = f"{cache.folder}: {size_text(sum(cache.sizes.values()))}{f' ({parts})' if parts else ''}"
    corrupt = f"; {len(cache.corrupt)} corrupt" if cache.corrupt else ""
    return f"{told}{corrupt}{f'; {cache.problem}' if cache.problem else ''}"
