"""The environment variables that configure a build, so that any build frontend can run it.

Files that no variable names are looked up in the folders that variables name.
"""

import functools
import importlib.util
import platform
import re
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import cast, get_args

from torchwheel_runtime.arch import lists
from torchwheel_runtime.arch.devices import visible_gpus
from torchwheel_runtime.arch.lists import VARIABLES
from torchwheel_runtime.arch.model import Backend
from torchwheel_runtime.arch.releases import ToolkitRelease
from torchwheel_runtime.builder.extension import Extension
from torchwheel_runtime.builder.target import DeviceCompiler, Python, Target, TorchHeaders
from torchwheel_runtime.claims import NativeAbi, PartKind
from torchwheel_runtime.errors import UsageError
from torchwheel_runtime.machine.toolkit_layout import HOME_VARIABLES, cuda_runtime, hip_runtime

# Usual names.
CUDA_HOME = HOME_VARIABLES["cuda"]
ARCH_LIST = VARIABLES["cuda"]
ROCM_PATH = HOME_VARIABLES["rocm"]
ROCM_ARCH = VARIABLES["rocm"]
CXX = "CXX"
# torchwheel's names. Without ABI, setup.py builds the pure-Python package.
ABI = "TORCHWHEEL_ABI"
BACKEND = "TORCHWHEEL_BACKEND"
NAME = "TORCHWHEEL_NAME"
PART = "TORCHWHEEL_PART"
TOOLKIT = "TORCHWHEEL_TOOLKIT"
TORCH = "TORCHWHEEL_TORCH"
TORCH_RELEASE = "TORCHWHEEL_TORCH_RELEASE"
PLATFORM = "TORCHWHEEL_PLATFORM"
SYSROOT = "TORCHWHEEL_SYSROOT"
BUILD_FOLDER = "TORCHWHEEL_BUILD_FOLDER"
SHARED_FOLDER = "TORCHWHEEL_SHARED_FOLDER"
# Of a build that only compiles what variants share: which part of it, e.g. "2/3".
SHARD = "TORCHWHEEL_SHARD"
# Of a build that links what was compiled elsewhere; the second forbids to compile kernels.
KERNELS = "TORCHWHEEL_KERNELS"
KERNELS_ONLY = "TORCHWHEEL_KERNELS_ONLY"

# Of an extension: whether an operator, or every one that is not named, is built; 1 or 0.
_SWITCH = "BUILD_OP"


def needed_variables(environ: Mapping[str, str]) -> list[str]:
    """The variables that a native build needs beside ABI and that `environ` lacks."""
    backend = _backend(environ)
    needed = (HOME_VARIABLES[backend], VARIABLES[backend], TOOLKIT, TORCH, TORCH_RELEASE)
    return [name for name in needed if not environ.get(name)]


def _backend(environ: Mapping[str, str]) -> Backend:
    return "rocm" if environ.get(BACKEND) == "rocm" else "cuda"


def can_complete(environ: Mapping[str, str]) -> bool:
    """Whether `environ` lacks variables that `provision.complete_environment` can add."""
    return (
        environ.get(ABI) == "stable"
        and (environ.get(BACKEND) or "cuda") == "cuda"
        and not environ.get(PART)
        and bool(needed_variables(environ))
    )


def read_target(environ: Mapping[str, str], source: Path) -> Target | None:
    """The target that `environ` describes; None for the pure-Python package."""
    if environ.get(ABI, "pure") == "pure":
        return None
    abi = cast("NativeAbi", environ[ABI])
    if abi not in get_args(NativeAbi):
        raise UsageError(f"{ABI}={abi}: stable, aten or pure expected")
    if (environ.get(BACKEND) or "cuda") not in HOME_VARIABLES:
        raise UsageError(f"{BACKEND}={environ[BACKEND]}: cuda or rocm expected")
    missing = needed_variables(environ)
    if missing:
        raise UsageError(
            f"{ABI}={abi} needs {', '.join(missing)} too; `torchwheel wheels` sets them"
        )
    part = cast("PartKind | None", environ.get(PART) or None)
    if part not in (None, *get_args(PartKind)):
        kinds = ", ".join(get_args(PartKind))
        raise UsageError(f"{PART}={part}: {kinds} or nothing expected")
    target_platform = read_platform(environ)
    machine = target_platform.removeprefix("linux_")
    cross = machine != platform.machine()
    module = abi == "aten" and part is None
    if module and cross:  # it needs the headers of the Python that it is for
        raise UsageError(f"{ABI}=aten for another platform: build it on that platform")
    torch = Path(environ[TORCH])
    return Target(
        name=environ.get(NAME, abi),
        abi=abi,
        source=source.resolve(),
        toolkit=_device_compiler(environ, machine, cross=cross),
        torch=TorchHeaders(torch, environ[TORCH_RELEASE], abi == "aten" and has_old_abi(torch)),
        platform=target_platform,
        cross=cross,
        cxx=environ.get(CXX) or "g++",
        python=running_python() if module else None,
        sysroot=sysroot_flags(Path(environ[SYSROOT]), machine) if environ.get(SYSROOT) else (),
        part=part,
    )


def read_platform(environ: Mapping[str, str]) -> str:
    """The platform that is built for, e.g. "linux_x86_64"."""
    return environ.get(PLATFORM) or f"linux_{platform.machine()}"


def operators_off(extension: Extension, environ: Mapping[str, str]) -> frozenset[str]:
    """Names of the operators that `environ` switches off, e.g. with MYPACKAGE_BUILD_OP_SCALE=0.

    MYPACKAGE_BUILD_OPS=0 switches off every operator that has no variable of its own.

    Raises:
        UsageError: a variable names no operator, or is neither 0 nor 1.
    """
    prefix = _variable_name(extension.package)
    every = f"{prefix}_{_SWITCH}S"
    own = {operator_variable(extension, op.name): op.name for op in extension.operators}
    for name in operator_switches(environ):
        if name.startswith(f"{prefix}_{_SWITCH}_") and name not in own:
            raise UsageError(f"{name}: expected one of {', '.join(own)}; correct the name")
    default = _is_on(environ, every, default=True)
    return frozenset(
        operator for name, operator in own.items() if not _is_on(environ, name, default=default)
    )


def operator_variable(extension: Extension, operator: str) -> str:
    """The variable that switches an operator, e.g. MYPACKAGE_BUILD_OP_SCALE."""
    return f"{_variable_name(extension.package)}_{_SWITCH}_{_variable_name(operator)}"


def operator_switches(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that switch operators of some extension, by the form of their names."""
    return {
        name: value
        for name, value in sorted(environ.items())
        if name.endswith(f"_{_SWITCH}S") or f"_{_SWITCH}_" in name
    }


def _variable_name(name: str) -> str:
    return re.sub(r"\W", "_", name, flags=re.ASCII).upper()


def _is_on(environ: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = environ.get(name) or str(int(default))
    if text not in ("0", "1"):
        raise UsageError(f"{name}: expected 1 or 0, found {text!r}; correct it")
    return text == "1"


def require_stable_floor(extension: Extension, target: Target) -> None:
    """Refuse a stable build for another torch than the extension's floor.

    The matrix declares the floor in `abis.stable.torch`, and the extension in `torch`, by which
    the run-time half chooses a flavour. A wheel must not promise what its extension does not.
    """
    floor = target.torch.release
    if target.abi == "stable" and target.part != "kernels" and floor != extension.torch:
        raise UsageError(
            f"{TORCH_RELEASE}={floor}: expected {extension.torch}, the oldest torch that "
            f"{extension.package}'s Extension names; make it and abis.stable.torch of the matrix "
            "the same"
        )


def _device_compiler(environ: Mapping[str, str], machine: str, *, cross: bool) -> DeviceCompiler:
    backend = _backend(environ)
    root = Path(environ[HOME_VARIABLES[backend]])
    release = ToolkitRelease(backend, environ[TOOLKIT])
    variable = VARIABLES[backend]
    gpus = functools.partial(visible_gpus, backend, environ)
    archs = lists.parse_arch_list(environ[variable], release, gpus, variable)
    return DeviceCompiler(
        release=release,
        root=root,
        archs=archs.require_all(variable),
        runtime=hip_runtime(root, machine)
        if backend == "rocm"
        else cuda_runtime(root, machine, cross=cross),
    )


_CONFIG = Path("torch", "share", "cmake", "Torch", "TorchConfig.cmake")


def has_old_abi(torch: Path) -> bool:
    """Whether the torch in this folder was built with libstdc++'s old strings, as 2.6 was.

    Its own CMake file says so; a torch that is silent there has the compiler's default.
    """
    try:
        text = (torch / _CONFIG).read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"{torch / _CONFIG}: {error.strerror}; it says with which C++ ABI torch was built"
        ) from error
    return bool(re.search(r"^[^#\n]*-D_GLIBCXX_USE_CXX11_ABI=0\b", text, re.MULTILINE))


def running_python(pybind11: Path | None = None) -> Python:
    """The CPython that runs the build, which is the one an extension module is for.

    Args:
        pybind11: an include folder that has it; the installed package's if none is given.
    """
    if pybind11 is None:
        spec = importlib.util.find_spec("pybind11")
        if spec is None or spec.origin is None:
            raise UsageError(
                "the aten flavour is built with pybind11, which is not installed here: "
                "run `pip install pybind11`"
            )
        pybind11 = Path(spec.origin).parent / "include"
    return Python(
        include=python_include(),
        pybind11=pybind11,
        suffix=str(sysconfig.get_config_var("EXT_SUFFIX")),
    )


def python_include() -> Path:
    """The folder of Python.h of the CPython that runs the build."""
    return Path(sysconfig.get_path("include"))


def sysroot_flags(root: Path, machine: str) -> tuple[str, ...]:
    """Flags that make clang take an older system's headers and libraries, libstdc++'s included.

    The system in `root` has one gcc of its own.
    """
    pattern = f"usr/lib/gcc/{machine}-*/*"
    found = [path.parent for path in root.glob(f"{pattern}/libstdc++.a")]
    if len(found) != 1:
        raise UsageError(
            f"TORCHWHEEL_SYSROOT={root}: {pattern} with libstdc++.a expected once, "
            f"found {len(found)} times"
        )
    return (f"--sysroot={root}", f"--gcc-install-dir={found[0]}")
