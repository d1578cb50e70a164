"""Finds or makes the folder of a toolkit: the pinned components of PyPI, or the system's.

What is used is checked to be of one release.
"""

import hashlib
import os
import re
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from torchwheel_runtime import process
from torchwheel_runtime.console import Progress
from torchwheel_runtime.errors import TorchwheelError, program_error
from torchwheel_runtime.files import make_executable, path_inside
from torchwheel_runtime.ownership import find_program
from torchwheel_runtime.toolkit.cache import make_once
from torchwheel_runtime.toolkit.index import download, target_options
from torchwheel_runtime.toolkit.lock import Component, components, pinned_requirements
from torchwheel_runtime.toolkit.toolkit_home import link_plain_names
from torchwheel_runtime.versions import minor_version

# The toolkit's root in the wheels.
_PREFIX = "nvidia/cu{major}/"


def pypi_identity(pinned: Sequence[Component], platform: str) -> str:
    """Hash of a set of components, made of the hashes of their files."""
    text = "\n".join(sorted(f"{c.project} {c.version} {c.hash_for(platform)}" for c in pinned))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def provision_pypi(
    version: str, platform: str, cache: Path, progress: Progress
) -> tuple[Path, str]:
    """The folder of CUDA `version` for `platform`, made if it is missing; and its identity."""
    pinned = components(version)
    name = pypi_identity(pinned, platform)
    root = cache / "toolkits" / f"cuda-{version}-{platform}-{name}"
    make_once(
        root,
        lambda folder: _assemble(pinned, version, platform, folder),
        progress,
        doing=f"CUDA {version}: downloading {len(pinned)} components",
        busy=f"CUDA {version}: another run provisions it",
    )
    return root, name


def _assemble(pinned: Sequence[Component], version: str, platform: str, root: Path) -> None:
    with tempfile.TemporaryDirectory(dir=root) as folder:
        doing = "downloading the CUDA toolkit"
        options = target_options(platform)
        for wheel in download(pinned_requirements(pinned, platform), Path(folder), options, doing):
            _unpack(wheel, _PREFIX.format(major=version.partition(".")[0]), root)
    _add_links(root)


def _unpack(wheel: Path, prefix: str, root: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for info in archive.infolist():
            name = info.filename.removeprefix(prefix)
            if name == info.filename or info.is_dir() or name.startswith("__init__"):
                continue
            target = path_inside(root, name, wheel.name)
            target.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(info) as member, target.open("wb") as file:
                shutil.copyfileobj(member, file)
            if (info.external_attr >> 16) & 0o111:
                make_executable(target)


def _add_links(root: Path) -> None:
    """Add the links that tools expect and the wheels lack."""
    (root / "lib64").symlink_to("lib")
    link_plain_names(root / "lib")


_DEFAULT_ROOT = Path("/usr/local/cuda")


def locate_system(
    say: Callable[[str], None], environ: Mapping[str, str] = os.environ
) -> tuple[Path, str]:
    """The toolkit's folder and identity: CUDA_HOME, else nvcc's on the PATH, else the default.

    Args:
        say: reports an nvcc that is not used, as others can exchange it.
        environ: has CUDA_HOME and PATH.
    """
    for where, root in (
        ("CUDA_HOME", Path(environ["CUDA_HOME"]) if environ.get("CUDA_HOME") else None),
        ("nvcc on the PATH", None if environ.get("CUDA_HOME") else _nvcc_root(environ, say)),
        (str(_DEFAULT_ROOT), _DEFAULT_ROOT),
    ):
        if root is None:
            continue
        nvcc = root / "bin" / "nvcc"
        if nvcc.is_file():
            return root.resolve(), _identity(nvcc)
        if where == "CUDA_HOME":
            raise TorchwheelError(f"CUDA_HOME={root}: has no bin/nvcc; point it at a CUDA toolkit")
    raise TorchwheelError(
        f"no CUDA toolkit here (no CUDA_HOME, no nvcc on the PATH, no {_DEFAULT_ROOT}/bin/nvcc): "
        "set CUDA_HOME, or use `source: pypi` in matrix.yaml"
    )


def _nvcc_root(environ: Mapping[str, str], say: Callable[[str], None]) -> Path | None:
    nvcc = find_program("nvcc", environ.get("PATH"), lambda error: say(str(error)))
    return Path(nvcc).resolve().parent.parent if nvcc else None


def _identity(nvcc: Path) -> str:
    stat = nvcc.stat()
    return hashlib.sha256(
        f"{nvcc.resolve()} {stat.st_size} {stat.st_mtime_ns}".encode()
    ).hexdigest()[:16]


_ERROR = re.compile("error|fatal")


def tool_output(command: Sequence[str]) -> str:
    """The output of a tool of the toolkit; a failure is one line."""
    done = process.run(command)
    if done.status:
        why = done.reason(_ERROR, first=True, otherwise="failed")
        raise program_error(f"{Path(command[0]).name}: {why}")
    return done.output + done.errors


def _tool_release(tool: Path) -> str:
    """The release that a tool prints for --version, e.g. "13.0.88"."""
    match = re.search(r"\bV(\d+\.\d+\.\d+)", tool_output([str(tool), "--version"]))
    if not match:
        raise TorchwheelError(f"{tool}: prints no release for --version")
    return match[1]


def _cudart_version(root: Path) -> str:
    """The runtime's version from its header, as "13.0"."""
    header = root / "include" / "cuda_runtime_api.h"
    try:
        text = header.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise TorchwheelError(f"{header}: {error.strerror}") from error
    match = re.search(r"#define\s+CUDART_VERSION\s+(\d+)", text)
    if not match:
        raise TorchwheelError(f"{header}: defines no CUDART_VERSION")
    number = int(match[1])
    return f"{number // 1000}.{number % 1000 // 10}"


def nvcc_release(root: Path) -> str:
    """The release of a toolkit by its nvcc, as "13.0"."""
    return minor_version(_tool_release(root / "bin" / "nvcc"))


def agreed_release(root: Path, version: str) -> str:
    """The release of nvcc; nvcc, ptxas and cudart must all be of CUDA `version`."""
    releases = {tool: _tool_release(root / "bin" / tool) for tool in ("nvcc", "ptxas")}
    if len(set(releases.values())) > 1:
        named = ", ".join(f"{tool} {release}" for tool, release in releases.items())
        raise TorchwheelError(
            f"{root}: a mixed toolkit: {named}; every component must be one release"
        )
    release = releases["nvcc"]
    for name, part_version in (
        ("nvcc", ".".join(release.split(".")[:2])),
        ("cudart", _cudart_version(root)),
    ):
        if part_version != version:
            raise TorchwheelError(
                f"{root}: {name} is of CUDA {part_version}; {version} was asked for"
            )
    return release
