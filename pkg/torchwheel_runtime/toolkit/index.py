"""Files of the package index, found and downloaded by pip with its indexes, proxies and CAs."""

import dataclasses
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.files import sha256
from torchwheel_runtime.json_files import read_json
from torchwheel_runtime.pip import run_pip

_ADVICE = " (run again to go on; finished downloads are kept)"
# pip matches a platform tag exactly, so an older wheel's tag has to be listed too.
_GLIBC_MINORS = (5, 12, 17, *range(18, 40))
_LEGACY = ("manylinux1", "manylinux2010", "manylinux2014")


@dataclasses.dataclass(frozen=True)
class IndexedFile:
    """One file of an index: its project and release, its address and its hash."""

    project: str
    version: str
    url: str
    sha256: str


@dataclasses.dataclass(frozen=True)
class _Hashes:
    sha256: str


@dataclasses.dataclass(frozen=True)
class _ArchiveInfo:
    hashes: _Hashes


@dataclasses.dataclass(frozen=True)
class _DownloadInfo:
    url: str
    archive_info: _ArchiveInfo


@dataclasses.dataclass(frozen=True)
class _Metadata:
    name: str
    version: str


@dataclasses.dataclass(frozen=True)
class _Item:
    metadata: _Metadata
    download_info: _DownloadInfo


@dataclasses.dataclass(frozen=True)
class _InstallationReport:
    """The part of pip's installation report that is used."""

    install: tuple[_Item, ...]


def platform_tags(platform: str) -> list[str]:
    """The manylinux tags of `platform` ("linux_x86_64") that pip is to accept."""
    machine = platform.removeprefix("linux_")
    tags = [f"manylinux_2_{minor}_{machine}" for minor in reversed(_GLIBC_MINORS)]
    return [*tags, *(f"{name}_{machine}" for name in _LEGACY)]


def target_options(platform: str, python: str | None = None) -> list[str]:
    """Pip's options for binary files of another platform, and of another Python if given."""
    options = ["--no-deps", "--only-binary=:all:"]
    for tag in platform_tags(platform):
        options += ["--platform", tag]
    return options + (["--python-version", python] if python else [])


def requirement_lines(pins: Mapping[str, str]) -> str:
    """A requirements file of pinned requirements, each with the sha256 of its file."""
    return "".join(f"{pin} --hash=sha256:{digest}\n" for pin, digest in pins.items())


def download(
    pins: Mapping[str, str], folder: Path, options: Sequence[str], doing: str
) -> list[Path]:
    """Download pinned requirements, each with the sha256 of its file, into `folder`."""
    requirements = folder / "requirements.txt"
    requirements.write_text(requirement_lines(pins))
    run_pip(
        ["download", "--quiet", "--require-hashes", *options]
        + ["--dest", str(folder), "--requirement", str(requirements)],
        doing,
        advice=_ADVICE,
    )
    wheels = sorted(folder.glob("*.whl"))
    # pip has checked the hashes; this catches a faulty disk.
    if {sha256(wheel) for wheel in wheels} != set(pins.values()):
        raise TorchwheelError(f"{doing}: the files are not those of the lock")
    return wheels


def find_files(
    requirements: Sequence[str], platform: str, python: str | None = None
) -> list[IndexedFile]:
    """Resolve `requirements` to files without downloading them.

    The metadata of a wheel is a file of the index (PEP 658). Of an index without it, pip reads the
    metadata in the wheel by HTTP ranges; only a server without these has to send the whole wheel.
    """
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        options = ["--dry-run", "--ignore-installed", "--target", folder, "--report", str(report)]
        run_pip(
            ["install", *options, *target_options(platform, python), *requirements],
            f"looking up {', '.join(requirements)}",
            advice=_ADVICE,
            feature="fast-deps",
        )
        items = read_json(
            report, _InstallationReport, others=True, do="install another pip"
        ).install
    return [
        IndexedFile(
            project=item.metadata.name,
            version=item.metadata.version,
            url=item.download_info.url,
            sha256=item.download_info.archive_info.hashes.sha256,
        )
        for item in items
    ]
