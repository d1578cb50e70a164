"""Finds the CUDA and ROCm toolkits of this machine and checks that their parts fit."""

import dataclasses
import hashlib
import itertools
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from torchwheel_runtime.arch.model import Backend
from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.json_files import last_line
from torchwheel_runtime.machine import probe
from torchwheel_runtime.machine.facts import Absent, InstalledToolkit, split_absent
from torchwheel_runtime.machine.probe import file_text, is_file, program_output, real_path
from torchwheel_runtime.machine.toolkit_layout import (
    CICC_PATHS,
    HOME_VARIABLES,
    cuda_header,
    missing_files,
)
from torchwheel_runtime.ownership import UntrustedError, check_tree, find_program
from torchwheel_runtime.toolkit.cache import cache_path
from torchwheel_runtime.versions import header_version, minor_version, tool_version, version_numbers

# The wheel of each part, and how many numbers its version shares with nvcc's.
_WHEELS = {
    "ptxas": ("nvidia-cuda-nvcc", 3),
    "nvvm": ("nvidia-nvvm", 3),
    "crt": ("nvidia-cuda-crt", 3),
    "crt/host_config.h": ("nvidia-cuda-crt", 3),
    "cuda_runtime.h": ("nvidia-cuda-runtime", 2),
    "libcudart_static.a": ("nvidia-cuda-runtime", 2),
    "nv/target": ("nvidia-cuda-cccl", 1),
}


def inspect_cuda(root: Path, where: str) -> InstalledToolkit:
    """Check the parts of a toolkit of CUDA. Starts nvcc, ptxas and cicc: 0.1 s."""
    found = InstalledToolkit("cuda", root, "", where)
    nvcc = _tool_release(root / "bin" / "nvcc")
    if isinstance(nvcc, Absent):
        fix = "set CUDA_HOME to a complete CUDA toolkit"
        return dataclasses.replace(found, problem=nvcc.reason, fix=fix)
    found = dataclasses.replace(found, release=minor_version(nvcc))

    def broken(problem: str, *parts: str) -> InstalledToolkit:
        return dataclasses.replace(found, problem=problem, fix=_fix(root, nvcc, *parts))

    others: dict[str, str] = {}
    for name, release in (
        ("ptxas", _tool_release(root / "bin" / "ptxas")),
        ("nvvm", _nvvm_release(root)),
        *_crt_release(root),
    ):
        if isinstance(release, Absent):
            return broken(release.reason, name)
        others[name] = release
    if mixed := [name for name in others if minor_version(others[name]) != found.release]:
        named = ", ".join(f"{name} {release}" for name, release in {"nvcc": nvcc, **others}.items())
        return broken(f"a mixed toolkit: {named}", *mixed)
    if missing := missing_files(root):
        return broken(f"it has no {', '.join(missing)}", *missing)
    if problem := _cudart_problem(root, found.release):
        return broken(problem, "cuda_runtime.h")
    return found


def require_cuda(root: Path, release: str | None = None) -> str:
    """The release of a toolkit whose parts fit; it must be `release` if that is given.

    Raises:
        TorchwheelError: its parts do not fit, or it is of another release.
    """
    found = inspect_cuda(root, "")
    if found.problem:
        raise TorchwheelError(f"{root}: {found.problem}; {found.fix}")
    if release and found.release != release:
        raise TorchwheelError(f"{root}: nvcc is of CUDA {found.release}; {release} was asked for")
    return found.release


def _tool_release(tool: Path) -> str | Absent:
    """The release that a tool prints with --version, e.g. "13.0.88"."""
    if not is_file(tool):
        return Absent(f"it has no {tool.parent.name}/{tool.name}")
    output = program_output([str(tool), "--version"])
    return output if isinstance(output, Absent) else _release_in(tool.name, output)


def _nvvm_release(root: Path) -> str | Absent:
    """The release of cicc, read from PTX that it writes: cicc prints none."""
    cicc = next((root / place for place in CICC_PATHS if is_file(root / place)), None)
    if cicc is None:
        return Absent(f"it has no {CICC_PATHS[0]}")
    try:
        with tempfile.TemporaryDirectory() as folder:
            source, made = Path(folder, "empty.ii"), Path(folder, "empty.ptx")
            source.touch()
            # Every release from 11.8 to 13.5 compiles for 7.5.
            output = program_output(
                [str(cicc), "-arch", "compute_75", str(source), "-o", str(made)]
            )
            text = file_text(made)
    except OSError as error:
        return Absent(f"cicc was not tried, for want of a temporary folder: {error.strerror}")
    if isinstance(output, Absent):
        return output
    return Absent("cicc makes no PTX") if isinstance(text, Absent) else _release_in("cicc", text)


def _release_in(tool: str, text: str) -> str | Absent:
    return tool_version(text) or Absent(f"{tool} names no release of CUDA")


def _crt_release(root: Path) -> list[tuple[str, str]]:
    """The release of crt by its wheel's version; its headers have none."""
    prefix = "nvidia_cuda_crt-"
    found = root.parent.parent.glob(f"{prefix}*.dist-info") if _is_from_wheels(root) else ()
    names = [path.name.removeprefix(prefix).removesuffix(".dist-info") for path in found]
    return [("crt", name) for name in names[:1]]


def _is_from_wheels(root: Path) -> bool:
    """Whether pip installed the toolkit: site-packages/nvidia/cu13."""
    return root.parent.name == "nvidia"


def _cudart_problem(root: Path, release: str) -> str | None:
    """What is wrong with the runtime, by its header: it must be of the compiler's release."""
    header = cuda_header(root, "cuda_runtime_api.h")
    if header is None:
        return "it has no cuda_runtime_api.h"
    text = file_text(header)
    if isinstance(text, Absent):
        return text.reason
    found = re.search(r"#define\s+CUDART_VERSION\s+(\d{1,9})\b", text)
    if not found:
        return f"{header} defines no CUDART_VERSION"
    cudart = f"{int(found[1]) // 1000}.{int(found[1]) % 1000 // 10}"
    return None if cudart == release else f"a mixed toolkit: nvcc {release}, cudart {cudart}"


def pip_install_command(release: str, *names: str) -> str:
    """The command that installs a CUDA release from wheels, or the wheels of some parts of it.

    PyPI has compilers from CUDA 13.0 on. Left unpinned, nvidia-nvvm comes in its newest release.
    """
    pins = dict.fromkeys(_pin(release, *_WHEELS[name]) for name in names or _WHEELS)
    return f"`pip install {' '.join(pins)}`"


def _pin(release: str, wheel: str, depth: int) -> str:
    shared = version_numbers(release)[:depth]
    return f"'{wheel}=={'.'.join(map(str, shared))}{'' if len(shared) == 3 else '.*'}'"


def _fix(root: Path, nvcc: str, *names: str) -> str:
    """How to fix a toolkit: pip can fix wheels; another has to be installed again."""
    if _is_from_wheels(root):
        return pip_install_command(nvcc, *names)
    return "install this toolkit again, or set CUDA_HOME to another"


USUAL_CUDA = Path("/usr/local/cuda")
USUAL_ROCM = Path("/opt/rocm")
COMPILERS: Mapping[Backend, str] = {"cuda": "nvcc", "rocm": "hipcc"}
_CACHE = "torchwheel's cache"


def find_toolkits(
    backend: Backend,
    environ: Mapping[str, str] = os.environ,
    site: Sequence[str] | None = None,
    cache: Path | None = None,
) -> Iterator[InstalledToolkit]:
    """Find the toolkits of a backend one after another, each folder once.

    One of CUDA takes 0.1 s; of ROCm no program is started.

    Args:
        backend: CUDA or ROCm.
        environ: has CUDA_HOME or ROCM_PATH, and PATH.
        site: folders where pip may have installed one of CUDA; sys.path by default.
        cache: the cache folder, which has the toolkits that torchwheel provisioned.
    """
    seen: set[Path] = set()
    skipped: list[UntrustedError] = []
    program = COMPILERS[backend]
    compiler = find_program(program, environ.get("PATH", os.defpath), skipped.append)
    usual = _usual_roots(backend, sys.path if site is None else site, cache)
    for root, where in itertools.chain(_roots(backend, environ, compiler), usual):
        resolved = real_path(root)
        if resolved not in seen:
            seen.add(resolved)
            yield _inspect_rocm(root, where) if backend == "rocm" else _inspect_trusted(root, where)
    for error in skipped:  # a compiler on the PATH that others can exchange
        where = f"{program} on the PATH, skipped"
        yield InstalledToolkit(backend, error.place.parents[1], "", where, error.reason, error.fix)


def locate_system(
    say: Callable[[str], None], environ: Mapping[str, str] = os.environ
) -> tuple[Path, str]:
    """The folder of the system's CUDA: CUDA_HOME, else nvcc's on the PATH, else the usual one.

    Its identity comes with it, which changes with nvcc. Nothing is started but an nvcc that is a
    script, which says where its toolkit is.

    Args:
        say: reports an nvcc that is not used, as others can exchange it.
        environ: has CUDA_HOME and PATH.
    """
    home = environ.get("CUDA_HOME")
    roots = [Path(home)] if home else []
    if not home:
        nvcc = find_program("nvcc", environ.get("PATH"), lambda error: say(str(error)))
        roots = [_cuda_root_of(Path(nvcc))] if nvcc else []
    for root in [*roots, USUAL_CUDA]:
        nvcc_file = root / "bin" / "nvcc"
        if nvcc_file.is_file():
            stat = nvcc_file.stat()
            facts = f"{nvcc_file.resolve()} {stat.st_size} {stat.st_mtime_ns}"
            return root.resolve(), hashlib.sha256(facts.encode()).hexdigest()[:16]
        if home:
            raise TorchwheelError(f"CUDA_HOME={root}: has no bin/nvcc; point it at a CUDA toolkit")
    raise TorchwheelError(
        f"no CUDA toolkit here (no CUDA_HOME, no nvcc on the PATH, no {USUAL_CUDA}/bin/nvcc): "
        "set CUDA_HOME, or use `source: pypi` in matrix.yaml"
    )


def _roots(
    backend: Backend, environ: Mapping[str, str], compiler: str | None
) -> Iterator[tuple[Path, str]]:
    """What the variable and the PATH lead to. A wrong CUDA_HOME counts, to be reported."""
    variable = HOME_VARIABLES[backend]
    if environ.get(variable):
        yield Path(environ[variable]), variable
    if compiler:
        root = _rocm_root_of(compiler) if backend == "rocm" else _cuda_root_of(Path(compiler))
        yield root, f"{COMPILERS[backend]} on the PATH"


def _usual_roots(
    backend: Backend, site: Sequence[str], cache: Path | None
) -> Iterator[tuple[Path, str]]:
    """Folders where toolkits usually are, and how each was found."""
    if backend == "rocm":
        found = [*_rocm_of_wheels(), (USUAL_ROCM, str(USUAL_ROCM))]
    else:
        found = [(USUAL_CUDA, str(USUAL_CUDA))]
        found += [
            (root, "wheels in site-packages")
            for folder in site
            for root in _newest_first(Path(folder, "nvidia").glob("cu[0-9]*"))
        ]
        made = ((cache or _cache()) / "toolkits").glob(f"cuda-*-{probe.platform_tag()}-*")
        found += [(root, _CACHE) for root in _newest_first(made)]
    yield from (place for place in found if is_file(place[0] / "bin" / COMPILERS[backend]))


def _rocm_of_wheels() -> Iterator[tuple[Path, str]]:
    """The ROCm that AMD's wheels have unpacked for this Python; their program knows its folder."""
    program = Path(sys.executable).with_name("rocm-sdk")
    if is_file(program):
        answer = program_output([str(program), "path", "--root"])
        if not isinstance(answer, Absent):
            yield Path(last_line(answer)), "rocm-sdk"


def _cache() -> Path:
    try:
        return cache_path()
    except TorchwheelError:  # a user without a home folder, as in containers
        return Path(os.devnull)


def _inspect_trusted(path: Path, where: str) -> InstalledToolkit:
    """The toolkit; one of torchwheel's cache is inspected if nobody else wrote there."""
    root = real_path(path)
    try:
        if where == _CACHE:
            check_tree(path)
    except UntrustedError as error:
        return InstalledToolkit(
            "cuda", root, "", where, f"{error.place}: {error.reason}", error.fix
        )
    except OSError as error:
        problem = f"{error.filename or path}: {error.strerror}"
        return InstalledToolkit("cuda", root, "", where, problem)
    return inspect_cuda(root, where)


def _newest_first(folders: Iterable[Path]) -> list[Path]:
    """Folders sorted by the release in their names, e.g. cu13, cuda-13.0-linux_x86_64-…."""

    def release(folder: Path) -> tuple[int, ...]:
        return version_numbers(folder.name.removeprefix("cuda-").removeprefix("cu"))

    try:
        return sorted(folders, key=release, reverse=True)
    except OSError:  # they are searched for as it is iterated over; a path may be too long
        return []


def _cuda_root_of(nvcc: Path) -> Path:
    """The toolkit's folder.

    An nvcc without nvcc.profile beside it is a script that calls another nvcc. That one prints its
    folder, if there is a host compiler.
    """
    binary = real_path(nvcc)
    if not is_file(binary.parent / "nvcc.profile"):
        output = program_output([str(nvcc), "--dryrun", "-c", "x.cu"])
        lines = [] if isinstance(output, Absent) else output.splitlines()
        for line in lines:
            if line.startswith("#$ _HERE_="):
                return Path(line.partition("=")[2]).parent
    return binary.parent.parent


def _rocm_root_of(hipcc: str) -> Path:
    root = real_path(Path(hipcc)).parent.parent
    # AMD's packages once had it in /opt/rocm/hip/bin.
    return root.parent if root.name == "hip" else root


def _inspect_rocm(root: Path, where: str) -> InstalledToolkit:
    root = real_path(root)
    release, problem = split_absent(_rocm_release(root))
    if not is_file(root / "bin" / "hipcc"):
        problem = Absent("it has no bin/hipcc")
    fix = "set ROCM_PATH to a ROCm with hipcc and HIP's headers" if problem else None
    return InstalledToolkit(
        "rocm", root, release or "", where, problem.reason if problem else None, fix
    )


def _rocm_release(root: Path) -> str | Absent:
    """ROCm's release. HIP's header, which every build needs, has it where the two are one."""
    hip = root / "include" / "hip" / "hip_version.h"
    text = file_text(hip)
    if isinstance(text, Absent):
        return text
    own, core = root / ".info" / "version", root / "include" / "rocm-core" / "rocm_version.h"
    if is_file(own):
        release = minor_version(str(file_text(own)))
    else:
        release = header_version(str(file_text(core)), "ROCM") or header_version(text, "HIP") or ""
    return release or Absent(f"{own if is_file(own) else hip} tells no release")
