"""From what the matrix asks for to a verified toolkit, from PyPI or the system."""

import hashlib
import json
import os
import shutil
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from torchwheel.arch.lists import arch_list
from torchwheel.arch.model import Arch
from torchwheel.console import Progress
from torchwheel.errors import TorchwheelError, UsageError
from torchwheel.files import path_inside, write_text
from torchwheel.matrix.sections import Toolkit
from torchwheel.toolkit.cache import make_once
from torchwheel.toolkit.host import HostCompiler, check_bounds
from torchwheel.toolkit.index import download, target_options
from torchwheel.toolkit.lock import Component, components, pins
from torchwheel.toolkit.verify import agreed_release, probe

# Where the wheels put the toolkit's root.
_PREFIX = "nvidia/cu{major}/"


def pypi_identity(pinned: Sequence[Component], platform: str) -> str:
    """Names an exact set of components by the hashes of its files."""
    text = "\n".join(sorted(f"{c.project} {c.version} {c.sha256[platform]}" for c in pinned))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def provision_pypi(
    version: str, platform: str, cache: Path, progress: Progress
) -> tuple[Path, str]:
    """The folder of CUDA `version` for `platform`, and its identity; made if it is not there."""
    pinned = components(version)
    name = pypi_identity(pinned, platform)
    root = cache / "toolkits" / f"cuda-{version}-{platform}-{name}"
    make_once(
        root,
        lambda aside: _assemble(pinned, version, platform, aside),
        progress,
        doing=f"CUDA {version}: downloading {len(pinned)} components",
        busy=f"CUDA {version}: another run provisions it",
    )
    return root, name


def _assemble(pinned: Sequence[Component], version: str, platform: str, root: Path) -> None:
    with tempfile.TemporaryDirectory(dir=root) as folder:
        doing = "downloading the CUDA toolkit"
        options = target_options(platform)
        for wheel in download(pins(pinned, platform), Path(folder), options, doing):
            _unpack(wheel, _PREFIX.format(major=version.partition(".")[0]), root)
    _complete(root)


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
                target.chmod(0o755)


def _complete(root: Path) -> None:
    """Add what the wheels leave out and tools expect."""
    (root / "lib64").symlink_to("lib")
    name_plainly(root / "lib")


def name_plainly(folder: Path) -> None:
    """Give each library the name that a linker looks for: libcudart.so beside libcudart.so.13."""
    for library in sorted(folder.glob("lib*.so.*")):
        plain = library.with_name(library.name.partition(".so")[0] + ".so")
        if not plain.exists():
            plain.symlink_to(library.name)


_USUAL = Path("/usr/local/cuda")


def locate_system(environ: Mapping[str, str] = os.environ) -> tuple[Path, str]:
    """The toolkit's folder and identity: CUDA_HOME, else nvcc on the PATH, else the usual place."""
    for where, root in (
        ("CUDA_HOME", Path(environ["CUDA_HOME"]) if environ.get("CUDA_HOME") else None),
        ("nvcc on the PATH", _from_path(environ)),
        (str(_USUAL), _USUAL),
    ):
        if root is None:
            continue
        nvcc = root / "bin" / "nvcc"
        if nvcc.is_file():
            return root.resolve(), _identity(nvcc)
        if where == "CUDA_HOME":
            raise TorchwheelError(f"CUDA_HOME={root}: has no bin/nvcc; point it at a CUDA toolkit")
    raise TorchwheelError(
        f"no CUDA toolkit here (no CUDA_HOME, no nvcc on the PATH, no {_USUAL}/bin/nvcc): "
        "set CUDA_HOME, or use `source: pypi` in matrix.yaml"
    )


def _from_path(environ: Mapping[str, str]) -> Path | None:
    found = shutil.which("nvcc", path=environ.get("PATH"))
    return Path(found).resolve().parent.parent if found else None


def _identity(nvcc: Path) -> str:
    stat = nvcc.stat()
    return hashlib.sha256(
        f"{nvcc.resolve()} {stat.st_size} {stat.st_mtime_ns}".encode()
    ).hexdigest()[:16]


def provide(
    wanted: Toolkit,
    archs: Sequence[Arch],
    platform: str,
    host: HostCompiler,
    cache: Path,
    progress: Progress,
) -> Path:
    """The toolkit's folder, provisioned or found, and verified for `archs` and `host` once."""
    if wanted.backend != "cuda":
        raise UsageError(f"toolkit {wanted.name}: {wanted.backend} is built in a container only")
    check_bounds(host, wanted.host_compiler.model_dump(exclude_none=True), f"CUDA {wanted.version}")
    if wanted.source == "pypi":
        root, identity = provision_pypi(wanted.version, platform, cache, progress)
    elif wanted.source == "system":
        root, identity = locate_system()
    else:
        raise UsageError(
            f"toolkit {wanted.name}: source {wanted.source!r} is built in a container only"
        )
    facts = [identity, wanted.version, *map(str, archs), str(host.path), host.version]
    key = hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]
    marker = cache / "verified" / f"{key}.json"
    if not marker.exists():
        progress.step(f"{wanted.name}: verifying, a probe kernel for {arch_list(archs)}")
        release = agreed_release(root, wanted.version)
        probe(root, archs, str(host.path))
        write_text(marker, json.dumps({"release": release, "facts": facts}) + "\n")
    return root
