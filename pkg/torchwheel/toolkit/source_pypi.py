"""A CUDA toolkit from PyPI wheels: no root, no container.

Each exact set of components has a folder of its own, named by its content; two processes
that ask for it at once get one download.
"""

import hashlib
import shutil
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from torchwheel.console import Progress
from torchwheel.files import inside
from torchwheel.toolkit.cache import made_once
from torchwheel.toolkit.index import download, target_options
from torchwheel.toolkit.lock import Component, components, pins

# Where the wheels put the toolkit's root.
_PREFIX = "nvidia/cu{major}/"


def identity(pinned: Sequence[Component], platform: str) -> str:
    """Names an exact set of components by the hashes of its files."""
    text = "\n".join(sorted(f"{c.project} {c.version} {c.sha256[platform]}" for c in pinned))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def provision(version: str, platform: str, cache: Path, progress: Progress) -> tuple[Path, str]:
    """The folder of CUDA `version` for `platform`, and its identity; made if it is not there."""
    pinned = components(version)
    name = identity(pinned, platform)
    root = cache / "toolkits" / f"cuda-{version}-{platform}-{name}"
    made_once(
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
            target = inside(root, name, wheel.name)
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
