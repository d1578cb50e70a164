"""The toolkit lock: each component pinned to a release, with the hash of each file.

`python -m torchwheel.toolkit.lock 13.0 13.2` renews the CUDA releases named;
`python -m torchwheel.toolkit.lock --torch 2.11.0` the header source of a torch release.
"""

import argparse
import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from torchwheel.data import FOLDER, read
from torchwheel.errors import TorchwheelError, UsageError
from torchwheel.files import write_text
from torchwheel.toolkit.index import find_files
from torchwheel.toolkit.remote import RemoteArchive

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


@dataclasses.dataclass(frozen=True)
class TorchSource:
    """The wheel that gives the headers of a torch release; `record_sha256` pins its RECORD."""

    version: str
    platform: str
    sha256: str
    record_sha256: str


def _read_lock() -> dict[str, Any]:
    data: dict[str, Any] = read(FILE)
    return data


def locked_releases() -> tuple[str, ...]:
    """The CUDA releases that are pinned, e.g. ("13.0", …)."""
    return tuple(_read_lock()["cuda"])


def components(version: str) -> tuple[Component, ...]:
    """The pinned components of CUDA `version`, e.g. "13.0"."""
    known = _read_lock()["cuda"]
    if version not in known:
        raise UsageError(
            f"CUDA {version} is not in the toolkit lock (it has {', '.join(known)}): "
            f"run `python -m torchwheel.toolkit.lock {version}`, or use `source: system`"
        )
    return tuple(Component(**entry) for entry in known[version])


def pinned_requirements(components: Iterable[Component], platform: str) -> dict[str, str]:
    """The components as pinned requirements, each with the sha256 of its file."""
    return {f"{c.project}=={c.version}": c.sha256[platform] for c in components}


def torch_source(minor: str) -> TorchSource:
    """The header source of torch `minor`, e.g. "2.11"."""
    known = _read_lock()["torch"]
    if minor not in known:
        raise UsageError(
            f"torch {minor} has no header source in the toolkit lock (it has {', '.join(known)}): "
            f"run `python -m torchwheel.toolkit.lock --torch {minor}.0`"
        )
    return TorchSource(**known[minor])


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


def _lock_torch(version: str) -> TorchSource:
    file = find_files([f"torch=={version}"], PLATFORMS[0], TORCH_PYTHON)[0]
    archive = RemoteArchive(file.url)
    record = archive.read(f"torch-{version}.dist-info/RECORD")
    return TorchSource(version, PLATFORMS[0], file.sha256, hashlib.sha256(record).hexdigest())


def main(argv: list[str] | None = None) -> None:
    """Renew parts of the lock file of this source tree."""
    parser = argparse.ArgumentParser(prog="python -m torchwheel.toolkit.lock", description=__doc__)
    parser.add_argument("cuda", nargs="*", help='CUDA releases, e.g. "13.0"')
    parser.add_argument(
        "--torch", action="append", default=[], help='torch releases, e.g. "2.11.0"'
    )
    options = parser.parse_args(argv)
    data = _read_lock()
    for version in options.cuda:
        data["cuda"][version] = [dataclasses.asdict(c) for c in _lock_cuda(version)]
    for version in options.torch:
        minor = ".".join(version.split(".")[:2])
        data["torch"][minor] = dataclasses.asdict(_lock_torch(version))
    write_text(FOLDER / FILE, json.dumps(data, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
