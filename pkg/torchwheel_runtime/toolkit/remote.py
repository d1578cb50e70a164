"""Reads members of a zip file on a server by HTTP ranges.

Only the central directory and the members are transferred: a torch wheel has 500 MB, its headers
have 10 MB and lie together. The bytes are put into a sparse file, which zipfile reads.
"""

import http.client
import tempfile
import urllib.request
import zipfile
from collections.abc import Callable, Iterable
from typing import IO

from torchwheel_runtime.download import blocks_of
from torchwheel_runtime.errors import TorchwheelError
from torchwheel_runtime.fetch import Fetcher

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
