"""The toolkit lock: each component pinned to a release, with the hash of each file.

`python -m torchwheel_runtime.toolkit.lock 13.0 13.2` renews the CUDA releases named;
`python -m torchwheel_runtime.toolkit.lock --torch 2.11.0` the header source of a torch release.
"""

import argparse
import dataclasses
import hashlib
import json
import sys
from collections.abc import Iterable, Mapping

from torchwheel_runtime.console import run_command
from torchwheel_runtime.data import FOLDER, read_as
from torchwheel_runtime.errors import TorchwheelError, UsageError
from torchwheel_runtime.files import write_text
from torchwheel_runtime.text import join_names, quote
from torchwheel_runtime.toolkit.index import RemoteArchive, find_files

FILE = "toolkits.lock.json"
PLATFORMS = ("linux_x86_64", "linux_aarch64")
# These three are one compiler: left unpinned, nvvm resolves to a newer major and ptxas
# stops with "Unsupported .version".
ONE_RELEASE = ("nvidia-cuda-nvcc", "nvidia-cuda-crt", "nvidia-nvvm")
OTHER_PARTS = ("nvidia-cuda-runtime", "nvidia-cuda-cccl")
TORCH_PYTHON = "3.12"


@dataclasses.dataclass(frozen=True)
class Component:
    """One pinned project of a toolkit: its release and the sha256 per platform."""

    project: str
    version: str
    sha256: Mapping[str, str]

    def hash_for(self, platform: str) -> str:
        """The sha256 of its file for a platform."""
        if platform not in self.sha256:
            raise TorchwheelError(
                f"{FILE}: {quote(self.project)}: expected a sha256 for {platform}, "
                f"found {_names(self.sha256)}; renew the lock"
            )
        return self.sha256[platform]


@dataclasses.dataclass(frozen=True)
class TorchSource:
    """The wheel that gives the headers of a torch release; `record_sha256` pins its RECORD."""

    version: str
    platform: str
    sha256: str
    record_sha256: str


@dataclasses.dataclass(frozen=True)
class ToolkitLock:
    """The lock file: the components of each CUDA release, and the source of each torch minor."""

    cuda: dict[str, tuple[Component, ...]]
    torch: dict[str, TorchSource]


def read_lock() -> ToolkitLock:
    """The lock file of this torchwheel."""
    return read_as(FILE, ToolkitLock)


def locked_releases() -> tuple[str, ...]:
    """The CUDA releases that are pinned, e.g. ("13.0", …)."""
    return tuple(read_lock().cuda)


def components(version: str) -> tuple[Component, ...]:
    """The pinned components of CUDA `version`, e.g. "13.0"."""
    known = read_lock().cuda
    if version not in known:
        raise UsageError(
            f"CUDA {version} is not in the toolkit lock (it has {_names(known)}): "
            f"run `python -m torchwheel_runtime.toolkit.lock {version}`, or use `source: system`"
        )
    return known[version]


def pinned_requirements(components: Iterable[Component], platform: str) -> dict[str, str]:
    """The components as pinned requirements, each with the sha256 of its file."""
    return {f"{c.project}=={c.version}": c.hash_for(platform) for c in components}


def torch_source(minor: str) -> TorchSource:
    """The header source of torch `minor`, e.g. "2.11"."""
    known = read_lock().torch
    if minor not in known:
        raise UsageError(
            f"torch {minor} has no header source in the toolkit lock (it has {_names(known)}): "
            f"run `python -m torchwheel_runtime.toolkit.lock --torch {minor}.0`"
        )
    return known[minor]


def _names(names: Iterable[str]) -> str:
    return join_names(map(quote, names)) or "none"


def _lock_cuda(version: str) -> list[Component]:
    nvcc = find_files([f"{ONE_RELEASE[0]}=={version}.*"], PLATFORMS[0])[0]
    requirements = [f"{project}=={nvcc.version}" for project in ONE_RELEASE]
    requirements += [f"{project}=={version}.*" for project in OTHER_PARTS]
    files = {
        platform: {f.project: f for f in find_files(requirements, platform)}
        for platform in PLATFORMS
    }
    first = files[PLATFORMS[0]]
    for project, file in first.items():
        for platform in PLATFORMS:
            if files[platform][project].version != file.version:
                raise TorchwheelError(
                    f"{project}: {platform} has another release than {file.version}"
                )
    return [
        Component(name, file.version, {p: files[p][name].sha256 for p in PLATFORMS})
        for name, file in first.items()
    ]


def look_up_torch(version: str) -> TorchSource:
    """The header source of a release ("2.12.1", or "2.12.*" for the newest), off the index."""
    file = find_files([f"torch=={version}"], PLATFORMS[0], TORCH_PYTHON)[0]
    version = file.version
    archive = RemoteArchive(file.url)
    record = archive.read(f"torch-{version}.dist-info/RECORD")
    return TorchSource(version, PLATFORMS[0], file.sha256, hashlib.sha256(record).hexdigest())


def main(argv: list[str] | None = None) -> int:
    """Renew parts of the lock file of this source tree; returns 0."""
    parser = argparse.ArgumentParser(
        prog="python -m torchwheel_runtime.toolkit.lock", description=__doc__
    )
    parser.add_argument("cuda", nargs="*", help='CUDA releases, e.g. "13.0"')
    parser.add_argument(
        "--torch", action="append", default=[], help='torch releases, e.g. "2.11.0"'
    )
    options = parser.parse_args(argv)
    lock = read_lock()
    for version in options.cuda:
        lock.cuda[version] = tuple(_lock_cuda(version))
    for version in options.torch:
        lock.torch[".".join(version.split(".")[:2])] = look_up_torch(version)
    content = json.dumps(dataclasses.asdict(lock), indent=1, sort_keys=True)
    write_text(FOLDER / FILE, content + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(run_command("toolkit.lock", main))
