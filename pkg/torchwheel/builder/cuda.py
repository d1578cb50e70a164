"""CUDA: nvcc, and a runtime that is linked in."""

from pathlib import Path

from torchwheel.builder.backend import Backend
from torchwheel.builder.found import CUDA_TARGETS
from torchwheel.builder.target import Target

_MODES_SINCE = (12, 8)  # of compression


def cuda(target: Target) -> Backend:
    """The parts of a build with CUDA; the decisions' measurements are in docs/design.md."""
    root, release = target.toolkit.root, target.toolkit.release
    # Measured on seven archs: 2.2 MB installed, not 7.2, and a smaller wheel too; with CUDA 12.4
    # a fifth of the size installed.
    modes = tuple(int(part) for part in release.split(".")) >= _MODES_SINCE
    return Backend(
        label="CUDA",
        compiler=(str(root / "bin" / "nvcc"), "-std=c++17", "-O3"),
        # cudafe's own stubs warn under -Wextra, so only nvcc's diagnostics are errors here.
        strict=("-Werror=all-warnings",),
        flags=(
            # Archs side by side: half the time for a touched file on 2 cores (7.6 s, not 13.1).
            # A fixed number, so that the command is the same on every machine.
            "--threads=4",
            "--compress-mode=size" if modes else "-Xfatbin=-compress-all",
            *(_cross(target) if target.cross else ()),
            "-ccbin",
            target.cxx,
        ),
        name_source="",
        pass_on=("-Xcompiler",),
        # -isystem: CUDA's headers are not ours to make warning-free.
        headers=("-isystem", str(_headers(target))),
        link=(str(target.toolkit.runtime), "-lrt", "-ldl", "-lpthread"),
    )


def _cross(target: Target) -> tuple[str, ...]:
    """Another platform's headers come first; one that nvcc's output includes comes with nvcc."""
    own = target.toolkit.root / "include"
    return ("--target-directory", _other(target), "-isystem", str(own))


def _headers(target: Target) -> Path:
    """Headers of the platform that is built for."""
    root = target.toolkit.root
    return root / "targets" / _other(target) / "include" if target.cross else root / "include"


def _other(target: Target) -> str:
    return CUDA_TARGETS[target.platform.removeprefix("linux_")]
