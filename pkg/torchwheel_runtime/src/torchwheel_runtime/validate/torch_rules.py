"""Rules about torch: its range, its backend, its release."""

import functools
import re
from collections.abc import Mapping
from typing import Any

from torchwheel_runtime.arch.model import BRANDS, Backend, runtime_major
from torchwheel_runtime.claims import Abi, LibraryNeeds
from torchwheel_runtime.machine.facts import Torch
from torchwheel_runtime.validate.findings import Finding
from torchwheel_runtime.versions import major_version, minor_version, version_numbers

_AT_LEAST = re.compile(r">=(\d+(?:\.\d+)*)", re.ASCII)
_ONE_SERIES = re.compile(r"==(\d+(?:\.\d+)*)\.\*", re.ASCII)
_FINAL = re.compile(r"(\d+(?:\.\d+)*)(?:\+[a-z0-9.]+)?", re.ASCII)


def range_contains(torch_range: str, version: str) -> bool:
    """Whether a range such as ">=2.11" or "==2.6.*", or "" for any, contains "2.11.0+cu130".

    A pre-release counts as what it is: 2.12.0a0 comes before 2.12.
    """
    if not torch_range:
        return True
    final = _FINAL.fullmatch(version)
    if final and (floor := _AT_LEAST.fullmatch(torch_range)):
        return _without_zeros(final[1]) >= _without_zeros(floor[1])
    if final and (series := _ONE_SERIES.fullmatch(torch_range)):
        prefix, numbers = version_numbers(series[1]), version_numbers(final[1])
        padded = numbers + (0,) * len(prefix)
        return padded[: len(prefix)] == prefix
    from packaging.specifiers import SpecifierSet  # noqa: PLC0415 - slow to import
    from packaging.version import InvalidVersion, Version  # noqa: PLC0415

    try:
        parsed = Version(version)
    except InvalidVersion:  # somebody's own build: its numbers count
        parsed = Version(".".join(map(str, version_numbers(version))) or "0")
    return SpecifierSet(torch_range).contains(parsed, prereleases=True)


def _without_zeros(text: str) -> tuple[int, ...]:
    """2.11 and 2.11.0 are one release."""
    numbers = version_numbers(text)
    while numbers and numbers[-1] == 0:
        numbers = numbers[:-1]
    return numbers


@functools.cache
def _table() -> dict[str, Any]:
    from torchwheel_runtime import data  # noqa: PLC0415 - an import seldom needs it

    table: dict[str, Any] = data.read("compat.json")
    return table


_SHARED = {"any": 0, "major": 1, "minor": 2}
"""How many numbers of a release a toolkit and torch must share."""


def driver_floor(release: str) -> tuple[str, str] | None:
    """For a CUDA release: the oldest driver, and the newest CUDA that older ones serve."""
    entry = _table()["driver"].get(major_version(release))
    return (entry["floor"], entry["older"]) if entry else None


def compiles_ptx(driver: str, release: str) -> bool:
    """Whether a driver that serves CUDA `driver` compiles PTX of CUDA `release`."""
    known = _table()["ptx"]
    newest, needed = known.get(minor_version(driver)), known.get(minor_version(release))
    if newest is None or needed is None:  # newer than the table
        return version_numbers(driver)[:2] >= version_numbers(release)[:2]
    return version_numbers(newest) >= version_numbers(needed)


def host_bounds(release: str) -> Mapping[str, str]:
    """C++ compilers that a CUDA release works with: {"gcc": ">=6,<16", …}; {} if unknown."""
    bounds: dict[str, str] = _table()["host_compiler"].get(minor_version(release), {})
    return bounds


def cxx_bounds(standard: int) -> Mapping[str, str]:
    """C++ compilers with a C++ standard: {"gcc": ">=11", …} for 20; {} if all that count have."""
    bounds: dict[str, str] = _table()["cxx"].get(str(standard), {})
    return bounds


def describe_torch(torch: Torch) -> str:
    """E.g. "torch 2.11.0+cu130, built with CUDA 13.0"."""
    if torch.backend is None:
        other = torch.other and f"for {torch.other.upper()}, which torchwheel does not know"
        return f"torch {torch.version}, built {other or 'for CPUs only'}"
    built = f"with {BRANDS[torch.backend]} {minor_version(torch.built_with(torch.backend) or '')}"
    return f"torch {torch.version}, built {built}"


def check_torch_range(needs: LibraryNeeds, torch: Torch | None, package: str) -> Finding | None:
    """Torch is installed, and in the range that the library is for."""
    install = f"`pip install 'torch{needs.torch_range}'`"
    if torch is None:
        return Finding("torch", expected=f"torch{needs.torch_range}", found="none", fix=install)
    if range_contains(needs.torch_range, torch.version):
        return None
    return Finding(
        "torch",
        expected=f"torch{needs.torch_range}, which {package} is built for",
        found=f"torch {torch.version}",
        fix=f"{install}, or install {other_wheel(package)} that is for torch {torch.minor}",
    )


def check_backend(needs: LibraryNeeds, torch: Torch, package: str) -> Finding | None:
    """Torch is built for the GPUs that the library has kernels for.

    A torch without GPU support loads a stable library too, and never calls its kernels.
    """
    built_for = torch.backend
    if needs.backend is None or built_for == needs.backend:
        return None
    name = BRANDS[needs.backend]
    if built_for is not None:
        other = f"{other_wheel(package)} with kernels for {BRANDS[built_for]}"
        fix = f"install {other}, or a torch for {name}"
    elif needs.backend == "cuda":
        release = torch.version.partition("+")[0]
        fix = f"`pip install --force-reinstall torch=={release}` brings PyPI's, which has CUDA"
    else:
        fix = "install a torch for ROCm: pytorch.org's page of installation names the command"
    return Finding(
        "backend",
        expected=f"a torch built for {name}, which {package} has its kernels for",
        found=describe_torch(torch),
        fix=fix,
        level="error" if built_for is not None or needs.abi == "aten" else "warning",
    )


def check_built_with(needs: LibraryNeeds, torch: Torch, package: str) -> Finding | None:
    """The toolkit that a finished library was built with fits torch's release."""
    if needs.toolkit_version is None or needs.backend is None:
        return None
    difference = toolkit_mismatch(needs.abi, needs.backend, needs.toolkit_version, torch)
    if difference is None:
        return None
    expected, shared = difference
    name = BRANDS[needs.backend]
    return Finding(
        "toolkit-torch",
        expected=expected,
        found=f"a library built with {name} {needs.toolkit_version}",
        fix=f"install {other_wheel(package)} built with {name} {shared}",
    )


def toolkit_mismatch(
    abi: Abi, backend: Backend, release: str, torch: Torch
) -> tuple[str, str] | None:
    """Why a toolkit does not fit torch: what is expected, and the part they must share; else None.

    A torch for other GPUs is a matter of another rule.
    """
    built_with = torch.built_with(backend)
    if not built_with or abi == "pure":
        return None
    if minor_version(built_with) == minor_version(release):  # the usual case reads no table
        return None
    rule = _table()["toolkit_torch"][backend][abi]
    size = _SHARED[rule["shared"]]
    if size == 1 and runtime_major(backend, built_with) == runtime_major(backend, release):
        return None
    if version_numbers(built_with)[:size] == version_numbers(release)[:size]:
        return None
    shared = ".".join(map(str, version_numbers(built_with)[:size]))
    name = BRANDS[backend]
    return f"{name} {shared}, that of {describe_torch(torch)} ({rule['why']})", shared


def other_wheel(package: str) -> str:
    """Words for another wheel of the package, and how to get it."""
    return f"a wheel of {package} ({install_command(package)} picks it)"


OF_ITS_AUTHORS = "--index-url URL"
"""The option that makes pip ask the index of a package's authors: PyPI has the names of ours from
anybody."""


def install_command(package: str) -> str:
    """The command that picks the wheel of a package for the installed torch."""
    return f"`torchwheel install {package} --index URL`"
