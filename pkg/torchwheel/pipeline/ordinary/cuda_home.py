"""A folder of links that looks as CUDA_HOME does to an ordinary setup.py.

The compiler is the toolkit's. The headers and libraries that a toolkit from PyPI lacks (cuBLAS,
cuSPARSE …, which ATen/cuda/CUDAContext.h includes) are those torch itself was installed with.
"""

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from torchwheel.toolkit.source_pypi import name_plainly

_MERGED = ("bin", "include", "lib", "lib64")


def assemble(target: Path, toolkit: Path, site: Path, launcher: Sequence[str]) -> Path:
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
