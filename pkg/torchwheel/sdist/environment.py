"""The environment that builds an sdist: torch, the requirements, a CUDA_HOME."""

import dataclasses
import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import build
import ninja

from torchwheel.builder import environment as variables
from torchwheel.sdist.target import EnvironmentTorch
from torchwheel.smoke import pip
from torchwheel.smoke.environment import Environment
from torchwheel.toolkit.host import HostCompiler
from torchwheel.toolkit.provide import name_plainly

_MERGED = ("bin", "include", "lib", "lib64")


def assemble_cuda_home(target: Path, toolkit: Path, site: Path, launcher: Sequence[str]) -> Path:
    """Make the folder `target`; returns what CUDA_HOME is to be.

    Args:
        target: where it goes; nothing is there yet.
        toolkit: the verified toolkit.
        site: site-packages of the environment that torch is installed in.
        launcher: put before nvcc, e.g. ("sccache",).
    """
    if toolkit == Path("/usr"):
        # A distribution's: it is whole, and its headers must not come before the C++ library's.
        return toolkit
    beside = sorted((site / "nvidia").glob("*"))
    _link(target, (path for path in toolkit.iterdir() if path.name not in _MERGED))
    for name in ("include", "lib64"):
        for folder in (toolkit / name, *(path / name.removesuffix("64") for path in beside)):
            if folder.is_dir():
                _link(target / name, folder.iterdir())
    (target / "lib").symlink_to("lib64")
    name_plainly(target / "lib64")
    # nvcc looks for its own files beside what was called, so it is called where it lies.
    script(target / "bin" / "nvcc", [*launcher, str(toolkit / "bin" / "nvcc")])
    _link(target / "bin", (toolkit / "bin").iterdir())
    return target


def script(path: Path, command: Sequence[str]) -> Path:
    """A program at `path` that runs `command` with the arguments it is given."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n', encoding="utf-8")
    path.chmod(0o755)
    return path


def _link(folder: Path, paths: Iterable[Path]) -> None:
    """Links to `paths` in `folder`; what is there under a name stays."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in paths:
        link = folder / path.name
        if not link.is_symlink() and not link.exists():
            link.symlink_to(path)


BYTES_PER_COMPILER = 3 << 30
"""Measured: torch/extension.h in an ordinary file costs a compiler 1.5 to 3 GB."""


@dataclasses.dataclass(frozen=True)
class Requirements:
    """Installs what a build, or its wheel, requires beside torch.

    Attributes:
        env: where it goes.
        torch: the torch that must stay as it is.
        folder: a folder for pip's constraints.
        more: requirements that the project does not declare.
    """

    env: Environment
    torch: EnvironmentTorch
    folder: Path
    more: tuple[str, ...] = ()

    def of_build(self, builder: build.ProjectBuilder) -> None:
        """Install what pyproject.toml asks for, and then what the project's backend asks for."""
        self.install([*builder.build_system_requires, *self.more], "the build requirements")
        if wanted := builder.get_requires_for_build("wheel"):
            self.install(wanted, "the build requirements")

    def install(self, wanted: Iterable[str], what: str) -> None:
        """Install `wanted`; no other torch comes with it."""
        constraints = self.folder / "constraints.txt"
        constraints.write_text(f"torch=={self.torch.release}\n", encoding="utf-8")
        pip.pip_install(
            self.env.python,
            ["--constraint", str(constraints), *sorted(wanted)],
            offline=False,
            what=f"cannot install {what} beside torch {self.torch.built.version}",
        )


def sdist_environment(
    env: Environment,
    *,
    cuda_home: Path | None,
    archs: Iterable[str],
    host: HostCompiler,
    cxx: Path,
    jobs: int,
    environ: Mapping[str, str] = os.environ,
) -> dict[str, str]:
    """What setup.py is told, beside the variables of this process.

    Args:
        env: the environment it runs in.
        cuda_home: the toolkit; None for a build without CUDA.
        archs: the arch list.
        host: the C++ compiler that nvcc is to use.
        cxx: the C++ compiler as the build calls it, with a launcher before it or without.
        jobs: compilers that may run side by side.
        environ: the variables of this process.
    """
    cuda_bin = [str(cuda_home / "bin")] if cuda_home else []
    return {
        # Nothing of torchwheel's own environment, but for ninja if there is none.
        "PYTHONPATH": "",
        "PYTHONHOME": "",
        "PYTHONNOUSERSITE": "1",
        "VIRTUAL_ENV": str(env.python.parent.parent),
        "PATH": os.pathsep.join([*cuda_bin, environ.get("PATH", os.defpath), ninja.BIN_DIR]),
        variables.CXX: str(cxx),
        "MAX_JOBS": str(jobs),
        # torch since 2.13 looks for sccache itself; once is enough.
        "TORCH_NO_COMPILER_WRAPPER": "1",
        **(_cuda(cuda_home, archs, host, environ) if cuda_home else {"FORCE_CUDA": "0"}),
    }


def _cuda(
    home: Path, archs: Iterable[str], host: HostCompiler, environ: Mapping[str, str]
) -> dict[str, str]:
    return {
        variables.CUDA_HOME: str(home),
        variables.ARCH_LIST: ";".join(archs),
        "NVCC_CCBIN": str(host.path),
        # Many ask torch.cuda.is_available() whether to build for CUDA: a machine that builds
        # need not have a GPU, and this is the name most of them heed.
        "FORCE_CUDA": environ.get("FORCE_CUDA") or "1",
    }
