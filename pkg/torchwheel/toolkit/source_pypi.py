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

from filelock import FileLock

from torchwheel.console import Progress, waiting
from torchwheel.errors import TorchwheelError
from torchwheel.files import folder_aside, sha256, sweep
from torchwheel.toolkit.index import run_pip, target_options
from torchwheel.toolkit.lock import Component, components

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
    root.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(root.parent / f"{root.name}.lock")
    if not root.exists():
        with waiting(lock, f"CUDA {version}: another run provisions it", progress):
            if not root.exists():
                sweep(root.parent, root.name)
                progress.step(f"CUDA {version}: downloading {len(pinned)} components")
                with folder_aside(root) as aside:
                    _assemble(pinned, version, platform, aside)
    return root, name


def _assemble(pinned: Sequence[Component], version: str, platform: str, root: Path) -> None:
    with tempfile.TemporaryDirectory(dir=root) as folder:
        downloads = Path(folder)
        requirements = downloads / "requirements.txt"
        requirements.write_text(
            "".join(
                f"{c.project}=={c.version} --hash=sha256:{c.sha256[platform]}\n" for c in pinned
            )
        )
        run_pip(
            ["download", "--quiet", "--require-hashes", *target_options(platform)]
            + ["--dest", str(downloads), "--requirement", str(requirements)],
            "downloading the CUDA toolkit",
        )
        wheels = sorted(downloads.glob("*.whl"))
        # pip has checked the hashes; a disk that lies is caught here.
        expected = {c.sha256[platform] for c in pinned}
        if {sha256(wheel) for wheel in wheels} != expected:
            raise TorchwheelError(
                "downloading the CUDA toolkit: the files are not those of the lock"
            )
        for wheel in wheels:
            _unpack(wheel, _PREFIX.format(major=version.partition(".")[0]), root)
    _complete(root)


def _unpack(wheel: Path, prefix: str, root: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for info in archive.infolist():
            inside = info.filename.removeprefix(prefix)
            if inside == info.filename or info.is_dir() or inside.startswith("__init__"):
                continue
            target = root / inside
            if not target.resolve().is_relative_to(root.resolve()):
                raise TorchwheelError(f"{wheel.name}: member {info.filename!r} leaves its folder")
            target.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(info) as member, target.open("wb") as file:
                shutil.copyfileobj(member, file)
            if (info.external_attr >> 16) & 0o111:
                target.chmod(0o755)


def _complete(root: Path) -> None:
    """Add what the wheels leave out and tools expect."""
    (root / "lib64").symlink_to("lib")
    for library in (root / "lib").glob("lib*.so.*"):
        plain = library.with_name(library.name.partition(".so")[0] + ".so")
        if not plain.exists():
            plain.symlink_to(library.name)
