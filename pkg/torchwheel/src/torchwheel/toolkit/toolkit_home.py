"""A CUDA_HOME or ROCM_HOME for a project's own build, and the time of torch's headers.

Containers import this module: standard library and packaging only.
"""

import os
import platform
import re
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from torchwheel_runtime import process
from torchwheel_runtime.files import make_executable, write_text
from torchwheel_runtime.machine.toolkit_layout import cuda_headers, cuda_runtime
from torchwheel_runtime.toolkit.provision import link_plain_names

HEADER_TIME = 1_000_000_000
"""When torch's headers were written, for all that compile with them."""
_SYSTEM = Path("/usr")
_MERGED = ("bin", "include", "lib", "lib64")
_ROCM_NAMES = ("hip*", "roc*", "thrust", "MIOpen", "miopen")
"""How the headers' folders and the libraries of ROCm's packages begin."""
DRIVER_STUB = Path("lib64", "stubs", "libcuda.so")
_DRIVER_CALL = re.compile(r"^\s*CUresult\s+(cu\w+)\s*\(", re.ASCII | re.MULTILINE)


def set_header_times(site: Path) -> None:
    """Give torch's headers in a folder of packages one time.

    gcc takes headers with `#pragma once`, equal content and equal times for one. Else it depended
    on the second in which pip or uv wrote each what gcc reads, and whether a compiler cache has the
    object that another machine or Python compiled. Of a link, the file is changed that it leads to.
    """
    for header in site.glob("torch/include/**/*.*"):
        # A change of the time would be news to a compiler cache that looks at it.
        if header.is_file() and header.stat().st_mtime != HEADER_TIME:
            os.utime(header, (HEADER_TIME, HEADER_TIME))


_PROGRAMS = "compiler"


def cuda_program(target: Path, toolkit: Path) -> Path:
    """The nvcc that a CUDA_HOME's bin/nvcc runs.

    nvcc finds its folders beside the path it is called by, and CMake's FindCUDAToolkit goes by
    what nvcc says of them. So it is called in the folder that has torch's libraries, too.
    """
    return (toolkit / "bin" if toolkit == _SYSTEM else target / _PROGRAMS) / "nvcc"


def assemble_cuda_home(
    target: Path, toolkit: Path, site: Path, nvcc: Sequence[str], cxx: Path
) -> Path:
    """Link a toolkit and the CUDA libraries of torch into one folder; returns CUDA_HOME.

    Args:
        target: the new folder.
        toolkit: the verified toolkit.
        site: site-packages of the environment that holds torch.
        nvcc: the command that its bin/nvcc runs: `cuda_program`, after launchers.
        cxx: a C++ compiler.
    """
    if toolkit == _SYSTEM:
        # A distribution's toolkit is complete, and its headers must not precede the C++ library's.
        return toolkit
    libraries = sorted((site / "nvidia").glob("*"))
    _link(target, (path for path in toolkit.iterdir() if path.name not in _MERGED))
    machine = platform.machine()
    for name, own in (
        ("include", cuda_headers(toolkit, machine)),
        ("lib64", cuda_runtime(toolkit, machine).parent),
    ):
        for folder in (own, *(path / name.removesuffix("64") for path in libraries)):
            if folder.is_dir():
                _link(target / name, folder.iterdir())
    (target / "lib").symlink_to("lib64")
    link_plain_names(target / "lib64")
    _make_driver_stub(target, cxx)
    _link(target / _PROGRAMS, (toolkit / "bin").iterdir())
    write_script(target / "bin" / "nvcc", nvcc)
    _link(target / "bin", (toolkit / "bin").iterdir())
    return target


def assemble_rocm_home(
    target: Path, toolkit: Path, hipcc: Sequence[str], system: Path = Path("/usr")
) -> Path:
    """Link a ROCm, and libraries for it from a system's packages, into one folder.

    Args:
        target: the new folder.
        toolkit: the ROCm.
        hipcc: the command that its bin/hipcc runs: the compiler, after launchers.
        system: where packages of the system have put hipBLAS and the like. A build that compiles
            for an older system looks there no more.

    Returns:
        ROCM_HOME.
    """
    merged = ("bin", "include", "lib")
    _link(target, (path for path in toolkit.iterdir() if path.name not in merged))
    for name in merged[1:]:
        _link(target / name, (toolkit / name).iterdir())
    for name in _ROCM_NAMES:
        _link(target / "include", system.glob(f"include/{name}"))
        _link(target / "lib", system.glob(f"lib/*-linux-gnu/lib{name}.so*"))
    write_script(target / "bin" / "hipcc", hipcc)
    _link(target / "bin", (toolkit / "bin").iterdir())
    return target


def _make_driver_stub(home: Path, cxx: Path) -> None:
    """Make what stands for the driver's library when a project links `-lcuda`.

    The library itself is on machines with a GPU alone. NVIDIA's own toolkit has such a file; PyPI's
    and the one that is unpacked from packages have none. Its functions are those of cuda.h.
    """
    header, stub = home / "include" / "cuda.h", home / DRIVER_STUB
    if not header.exists() or stub.parent.exists():
        return
    stub.parent.mkdir()
    # The header gives many functions the name of their newest version, by macros.
    listed = process.run([cxx, "-E", "-P", "-x", "c++", header])
    listed.require(f"the functions of {header}")
    names = sorted(set(_DRIVER_CALL.findall(listed.output)))
    source = stub.with_suffix(".cpp")
    write_text(source, "".join(f'extern "C" void {name}() {{}}\n' for name in names))
    options = ["-shared", "-nostdlib", "-Wl,-soname,libcuda.so.1", "-o"]
    process.run([cxx, *options, stub, source]).require(f"a stub of {stub.name}")


def write_script(path: Path, command: Sequence[str]) -> Path:
    """Write a program that runs `command` with its own arguments appended."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n', encoding="utf-8")
    make_executable(path)
    return path


def _link(folder: Path, paths: Iterable[Path]) -> None:
    """Link `paths` into `folder`; a name that exists there stays."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in paths:
        link = folder / path.name
        if not link.is_symlink() and not link.exists():
            link.symlink_to(path)
