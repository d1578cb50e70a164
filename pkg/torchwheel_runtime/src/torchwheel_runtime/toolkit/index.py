"""Files of the package index, found and downloaded by pip with its indexes, proxies and CAs.

Members of a zip file there are read by HTTP ranges. Only the central directory and the members are
transferred: a torch wheel has 500 MB, its headers have 10 MB and lie together. The bytes are put
into a sparse file, which zipfile reads.
"""

import dataclasses
import http.client
import tempfile
import urllib.request
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO

from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.fetch import Fetcher, blocks_of
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
        return read_report(report)


def read_report(report: Path) -> list[IndexedFile]:
    """The files that a report of pip names, each with its hash."""
    items = read_json(report, _InstallationReport, others=True, do="install another pip").install
    return [
        IndexedFile(
            project=item.metadata.name,
            version=item.metadata.version,
            url=item.download_info.url,
            sha256=item.download_info.archive_info.hashes.sha256,
        )
        for item in items
    ]


_TAIL = 4 << 20
# A local file header is 30 bytes, the name and an extra field that only it records.
_HEADER_SLACK = 30 + 1024
_MEMBER_BYTES = 64 << 20
"""Of a member, unpacked, and of what is fetched at once (torch's headers: 10 MiB)."""


class NoRangesError(TorchwheelError):
    """The server does not answer range requests; the caller must download the whole file."""


class RemoteArchive:
    """A zip file at `url`; only the members that are read are fetched."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._open = Fetcher().open
        self._file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as self
        head, size = self._get(f"bytes=-{_TAIL}", _TAIL)
        self._file.truncate(size)
        self._put(size - len(head), head)
        try:
            self._zip = zipfile.ZipFile(self._file)
        except zipfile.BadZipFile as error:
            raise TorchwheelError(f"{self.name}: not a zip file: {error}") from error

    @property
    def name(self) -> str:
        """The file's name."""
        return self.url.rsplit("/", 1)[-1]

    def members(self, accept: Callable[[str], bool]) -> list[str]:
        """Names of the members that `accept` accepts, without folders."""
        return [n for n in self._zip.namelist() if accept(n) and not n.endswith("/")]

    def fetch(self, names: Iterable[str]) -> None:
        """Fetch the members `names` with one request, from the first of them to the last."""
        infos = [self._zip.getinfo(name) for name in names]
        first = min(info.header_offset for info in infos)
        last = max(
            i.header_offset + i.compress_size + len(i.filename) + _HEADER_SLACK for i in infos
        )
        data, _ = self._get(f"bytes={first}-{last}", min(last - first + 1, _MEMBER_BYTES))
        self._put(first, data)

    def read(self, name: str) -> bytes:
        """The bytes of a member, fetched if necessary; zipfile checks the CRC."""
        if name not in self._zip.NameToInfo:
            raise TorchwheelError(f"{self.name}: {name} is missing")
        try:
            return self._read(name)
        except (zipfile.BadZipFile, EOFError):
            self.fetch([name])
            return self._read(name)

    def _read(self, name: str) -> bytes:
        with self._zip.open(name) as member:
            data = member.read(_MEMBER_BYTES + 1)
        if len(data) > _MEMBER_BYTES:
            raise TorchwheelError(
                f"{self.name}: {name}: expected at most {_MEMBER_BYTES >> 20} MiB, found more"
            )
        return data

    def _put(self, offset: int, data: bytes) -> None:
        self._file.seek(offset)
        self._file.write(data)

    def _get(self, span: str, most: int) -> tuple[bytes, int]:
        """The bytes of `span`, and the size of the whole file."""
        request = urllib.request.Request(self.url, headers={"Range": span})  # noqa: S310 - from pip
        try:
            with self._open(request) as answer:
                if answer.status != 206:
                    raise NoRangesError(f"{self.name}: the server ignores HTTP ranges")
                size = int(answer.headers["Content-Range"].rpartition("/")[2])
                data = b"".join(blocks_of(answer, most))
        except NoRangesError:
            raise
        # The last one: it leads to an address that must not be read.
        except (http.client.HTTPException, OSError, ValueError, TorchwheelError) as error:
            raise NoRangesError(
                f"{self.name}: could not be read by HTTP ranges: {error}"
            ) from error
        if len(data) > most:
            raise NoRangesError(f"{self.name}: the server sends more than was asked for")
        return data, size
