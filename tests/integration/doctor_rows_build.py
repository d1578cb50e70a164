"""Set-ups where a package has to be built at its first call, and could not be."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from doctor_bench import BUILDS, CUDA_TORCH, Bench, Make, row

import programmaker
from jitmaker import Builds, Told, make_library, wanted


def to_be_built(why: str) -> Callable[[Make], Make]:
    """A row of a package without a prebuilt library, on a machine with a GPU."""
    return row(f"to be built: {why}", torch=CUDA_TORCH, gpu={}, code=BUILDS)


def path_without(bench: Bench, *names: str) -> str:
    """A PATH that has every program but these."""
    folder = bench.folder / "bin"
    folder.mkdir()
    for entry in reversed(os.environ["PATH"].split(":")):
        for program in Path(entry).glob("*") if entry else ():
            link = folder / program.name
            if not re.fullmatch("|".join(names), program.name) and not link.is_symlink():
                link.symlink_to(program)
    return str(folder)


def mounted(bench: Bench, mount: str, folder: Path) -> None:
    """Have the doctor see `folder` as `mount` makes it, and nobody else."""
    bench.setup.prefix = ["unshare", "--mount", "sh", "-c", f'{mount} && exec "$@"', str(folder)]
    if not shutil.which("unshare") or _fails(bench):
        pytest.skip("no right to mount a folder in another place")


def _fails(bench: Bench) -> bool:
    return subprocess.run([*bench.setup.prefix, "true"], check=False).returncode != 0


def program(bench: Bench, name: str, text: str) -> Path:
    return programmaker.program(bench.folder / "stand-in" / "bin" / name, text)


@to_be_built("no compiler")
def no_compiler(bench):
    path = path_without(bench, r"g\+\+.*", r"c\+\+.*", r"clang.*")
    return {"PATH": path, "CUDA_HOME": str(bench.nvcc().parents[1])}


@to_be_built("no toolkit")
def no_toolkit(bench):
    if (usual := Path("/usr/local/cuda")).exists():
        mounted(bench, 'mount -t tmpfs tmpfs "$0"', usual)
    return {"PATH": path_without(bench, "nvcc")}


@to_be_built("a compiler too new for the toolkit")
def new_compiler(bench):
    gxx = shutil.which("g++")
    script = program(bench, "g++", f'exec {gxx} -U__GNUC__ -D__GNUC__=99 "$@"')
    return {"CXX": str(script), "CUDA_HOME": str(bench.nvcc().parents[1])}


@to_be_built("pip's toolkit, of two releases")
def mixed(bench):
    root = bench.setup.site / "nvidia" / "cu13"
    link = bench.setup.site / "nvidia"
    if link.is_symlink():
        link.unlink()
    root.mkdir(parents=True)
    for part in bench.nvcc().parents[1].iterdir():
        (root / part.name).symlink_to(part)
    for name in ("nvidia_cuda_nvcc-13.0.88", "nvidia_cuda_crt-13.2.51"):
        (bench.setup.site / f"{name}.dist-info").mkdir()
    return {"CUDA_HOME": str(root)}


@to_be_built("two toolkits on the path")
def two_toolkits(bench):
    nvcc = program(bench, "nvcc", "echo 'Cuda compilation tools, release 12.4, V12.4.131'")
    (nvcc.parent / "nvcc.profile").touch()
    path = f"{nvcc.parent}:{os.environ['PATH']}"
    return {"PATH": path, "CUDA_HOME": str(bench.nvcc().parents[1])}


@to_be_built("a cache that cannot be written")
def read_only_cache(bench):
    folder = bench.folder / "home" / "cache"
    folder.mkdir(parents=True)
    if os.geteuid():
        folder.chmod(0o500)
    else:  # whom no mode stops
        mounted(bench, 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0"', folder)
    return {"TORCHWHEEL_CACHE": str(folder), "CUDA_HOME": str(bench.nvcc().parents[1])}


@to_be_built("a library of the cache is corrupt")
def corrupt(bench):
    folder = bench.folder / "home" / "cache"
    library = make_library(folder / "jit", wanted(name="demo.scale"), Builds(), Told())
    library.chmod(0o644)
    library.write_bytes(b"junk" * 250)
    return {"TORCHWHEEL_CACHE": str(folder), "CUDA_HOME": str(bench.nvcc().parents[1])}
