"""Makes the folder of a CUDA toolkit of the pinned components on PyPI."""

import hashlib
import shutil
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from torchwheel_runtime.console import Progress
from torchwheel_runtime.files import make_executable, path_inside
from torchwheel_runtime.toolkit.cache import make_once
from torchwheel_runtime.toolkit.index import download, target_options
from torchwheel_runtime.toolkit.lock import Component, components, pinned_requirements

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


def link_plain_names(folder: Path) -> None:
    """Link each library under the linker's name for it: libcudart.so to libcudart.so.13."""
    for library in sorted(folder.glob("lib*.so.*")):
        plain = library.with_name(library.name.partition(".so")[0] + ".so")
        if not plain.exists():
            plain.symlink_to(library.name)
