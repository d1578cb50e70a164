"""Every CUDA toolkit of this machine, the preferred one first."""

import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from torchwheel.machine import system
from torchwheel.machine.cuda_parts import parts
from torchwheel.machine.model import FoundToolkit
from torchwheel.machine.tool import ask, is_file, real
from torchwheel.machine.torch_model import Absent
from torchwheel.machine.versions import numbers
from torchwheel.toolkit.cache import cache_path

USUAL = Path("/usr/local/cuda")


def cuda_toolkits(
    environ: Mapping[str, str] = os.environ,
    site: Sequence[str] | None = None,
    cache: Path | None = None,
) -> Iterator[FoundToolkit]:
    """Find them one after another, each folder once; 0.1 s for each that is taken.

    Args:
        environ: tells CUDA_HOME and PATH.
        site: folders where pip may have installed one; sys.path if none are given.
        cache: the cache folder, which holds those that torchwheel provisioned; the usual one if
            none is given.
    """
    seen: set[Path] = set()
    for root, where in _roots(environ, sys.path if site is None else site, cache or _cache()):
        resolved = real(root)
        if resolved not in seen:
            seen.add(resolved)
            found = parts(resolved)
            yield FoundToolkit("cuda", resolved, found.release, where, found.problem, found.fix)


def _roots(
    environ: Mapping[str, str], site: Sequence[str], cache: Path
) -> Iterator[tuple[Path, str]]:
    """Folders and what led to them. A wrong CUDA_HOME is one too: somebody meant it."""
    if environ.get("CUDA_HOME"):
        yield Path(environ["CUDA_HOME"]), "CUDA_HOME"
    if nvcc := shutil.which("nvcc", path=environ.get("PATH", os.defpath)):
        yield _root_of(Path(nvcc)), "nvcc on the PATH"
    found = [(USUAL, str(USUAL))]
    found += [
        (root, "wheels in site-packages")
        for folder in site
        for root in _newest_first(Path(folder, "nvidia").glob("cu[0-9]*"))
    ]
    made = (cache / "toolkits").glob(f"cuda-*-{system.platform_tag()}-*")
    found += [(root, "torchwheel's cache") for root in _newest_first(made)]
    yield from (place for place in found if is_file(place[0] / "bin" / "nvcc"))


def _cache() -> Path:
    try:
        return cache_path()
    except RuntimeError:  # a user without a home, as containers have them
        return Path(os.devnull)


def _newest_first(folders: Iterable[Path]) -> list[Path]:
    """By the release in names such as cu13 and cuda-13.0-linux_x86_64-…."""

    def release(folder: Path) -> tuple[int, ...]:
        return numbers(folder.name.removeprefix("cuda-").removeprefix("cu"))

    return sorted(folders, key=release, reverse=True)


def _root_of(nvcc: Path) -> Path:
    """The toolkit's folder. An nvcc without its profile beside it is a script that calls another.

    nvcc itself says where it is, if there is a host compiler.
    """
    binary = real(nvcc)
    if not is_file(binary.parent / "nvcc.profile"):
        said = ask([str(nvcc), "--dryrun", "-c", "x.cu"])
        lines = [] if isinstance(said, Absent) else said.splitlines()
        for line in lines:
            if line.startswith("#$ _HERE_="):
                return Path(line.partition("=")[2]).parent
    return binary.parent.parent
