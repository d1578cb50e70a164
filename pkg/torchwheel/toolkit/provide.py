"""Provides the toolkit that the matrix names, from PyPI or the system, and verifies it."""

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from torchwheel.arch.lists import arch_list
from torchwheel.arch.model import Arch
from torchwheel.console import Progress
from torchwheel.errors import TorchwheelError, UsageError
from torchwheel.files import make_executable, path_inside, write_text
from torchwheel.ownership import find_program, trusted_path
from torchwheel.toolkit.cache import make_once
from torchwheel.toolkit.host import HostCompiler, check_bounds
from torchwheel.toolkit.index import download, target_options
from torchwheel.toolkit.lock import Component, components, pinned_requirements
from torchwheel.toolkit.toolkit_home import link_plain_names
from torchwheel.toolkit.verify import agreed_release, compile_probe

if TYPE_CHECKING:  # it needs pydantic, which no installed extension and no pip build has
    from torchwheel.matrix.sections import Toolkit

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


def provide(
    toolkit: "Toolkit",
    archs: Sequence[Arch],
    platform: str,
    host: HostCompiler,
    cache: Path,
    progress: Progress,
) -> Path:
    """The toolkit's folder, provisioned or the system's, verified once for `archs` and `host`."""
    if toolkit.backend != "cuda":
        raise UsageError(f"toolkit {toolkit.name}: {toolkit.backend} is built in a container only")
    check_bounds(
        host, toolkit.host_compiler.model_dump(exclude_none=True), f"CUDA {toolkit.version}"
    )
    if toolkit.source == "pypi":
        root, identity = provision_pypi(toolkit.version, platform, cache, progress)
    elif toolkit.source == "system":
        root, identity = locate_system(progress.say)
    else:
        raise UsageError(
            f"toolkit {toolkit.name}: source {toolkit.source!r} is built in a container only"
        )
    facts = [identity, toolkit.version, *map(str, archs), str(host.path), host.version]
    key = hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]
    marker = cache / "verified" / f"{key}.json"
    if not _is_trusted(marker):
        progress.step(f"{toolkit.name}: verifying, a probe kernel for {arch_list(archs)}")
        release = agreed_release(root, toolkit.version)
        compile_probe(root, archs, str(host.path))
        # A cache that root made for all users is only read: then each run verifies the toolkit.
        with contextlib.suppress(OSError):
            trusted_path(marker.parent, create=True)
            write_text(marker, json.dumps({"release": release, "facts": facts}) + "\n")
    return root


def _is_trusted(marker: Path) -> bool:
    """Whether a marker is there, and only this user and root can have written it."""
    try:
        trusted_path(marker)
    except OSError:
        return False
    return True
