"""Unpacks an sdist as if it were hostile: it writes below one folder, and no link leads out."""

import functools
import math
import os
import posixpath
import tarfile
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any

from torchwheel.inspect.archive import fault_of_length, open_archive
from torchwheel.project_links import link_stays
from torchwheel_runtime.errors import TorchwheelError, UsageError
from torchwheel_runtime.files import explain_full_disk, make_executable, path_inside
from torchwheel_runtime.inspect import budgets
from torchwheel_runtime.inspect.window import CpuTime, WheelError
from torchwheel_runtime.text import quote, shorten

PROJECT = ("pyproject.toml", "setup.py")
_BLOCK = 1 << 20


def is_project(folder: Path) -> bool:
    """Whether pip could build `folder`."""
    return any((folder / name).is_file() for name in PROJECT)


def unpack(archive: Path, target: Path) -> Path:
    """Unpack an sdist (.tar.gz, .zip …) into `target`; returns the project's folder in it."""
    with explain_full_disk(target):
        if archive.suffix == ".zip":
            _unpack_zip(archive, target)
        elif archive.suffix == ".xz":
            raise UsageError(
                f"{archive.name}: expected .tar.gz or .zip, found .xz, which takes as much memory "
                "as its author likes; pack it again"
            )
        else:
            _unpack_tar(archive, target)
    tops = [path for path in target.iterdir() if not path.is_symlink() and path.is_dir()]
    projects = [path for path in (target, *tops) if is_project(path)]
    if not projects or (len(tops) > 1 and projects[0] != target):
        found = ", ".join(sorted(path.name for path in target.iterdir()))
        raise UsageError(
            f"{archive.name}: one folder with {' or '.join(PROJECT)} expected in it, "
            f"found {quote(found) if found else 'nothing'}"
        )
    return projects[0]


def _unpack_zip(archive: Path, target: Path) -> None:
    with open_archive(archive) as opened:
        for member in opened.files:
            path = path_inside(target, member.name, archive.name)
            _write(opened.blocks(member), path, bool(member.mode & 0o100))


def _unpack_tar(archive: Path, target: Path) -> None:
    where = archive.name
    try:
        with archive.open("rb") as raw, _Tar.open(fileobj=raw) as opened:
            packed = archive.stat().st_size
            members = _members(opened, where, packed)
            links = {name: one for name, one in members.items() if one.issym()}
            files = {
                name: _file_of(one, members, where)
                for name, one in members.items()
                if name not in links
            }
            # A hard link has no bytes in the archive, and those of its file on the disk.
            _check_size(sum(file.size for file in files.values()), packed, where)
            for name, file in files.items():
                source = opened.extractfile(file)
                if source is not None:
                    with source:
                        blocks = iter(functools.partial(source.read, _BLOCK), b"")
                        path = path_inside(target, name, where)
                        _write(blocks, path, bool(file.mode & 0o100))
            tops = {name.partition("/")[0] for name in members}
            project = target / tops.pop() if len(tops) == 1 else target
            _write_links(links, target, project, where)
    except _TooMuchError as error:
        raise TorchwheelError(f"{where}: {error}") from error
    except (tarfile.TarError, EOFError, zlib.error, ValueError) as error:
        raise TorchwheelError(f"{where}: not a whole tar archive: {_fact(error)}") from error
    except OSError as error:
        if error.errno is None:  # gzip and bzip2 report malformed data so
            raise TorchwheelError(f"{where}: not a whole tar archive: {_fact(error)}") from error
        # As the archive names the file.
        name = os.path.relpath(str(error.filename2 or error.filename), target)
        raise TorchwheelError(f"{where}: {error.strerror}: {quote(name)}") from error


class _TooMuchError(WheelError):
    """An archive asks for too much; the text does not name it."""


class _Tar(tarfile.TarFile):
    """A tar whose reader spends a limited time on it, and little memory on a header.

    It is not packed, or by gzip or bzip2.
    """

    OPEN_METH: Mapping[str, str] = {"tar": "taropen", "gz": "gzopen", "bz2": "bz2open"}  # type: ignore[misc]

    def __init__(
        self,
        name: str | None = None,
        mode: Any = "r",  # noqa: ANN401 - the base's
        fileobj: Any = None,  # noqa: ANN401
        **rest: Any,  # noqa: ANN401
    ) -> None:
        self._bytes = _Bytes(fileobj)
        super().__init__(name, mode, self._bytes, **rest)  # type: ignore[arg-type]

    def next(self) -> tarfile.TarInfo | None:
        """The next member; a long name or a pax header in front of it is read whole."""
        self._bytes.header = budgets.TAR_HEADER_BYTES
        try:
            return super().next()
        finally:
            self._bytes.header = None


class _Bytes:
    """The unpacked bytes of an open tar."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._cpu = CpuTime(budgets.INSPECT_SECONDS)
        self.header: int | None = None
        """What may still be read of a header; None if something else is read."""
        self.tell, self.close = file.tell, file.close

    def read(self, size: int) -> bytes:
        if self.header is not None:
            self.header -= size
            if self.header < 0:
                raise _TooMuchError("a header in it asks for too much memory")
        return self._next(size)

    def seek(self, place: int) -> None:
        """Go to a place; what is packed has to be unpacked up to there."""
        if place < self.tell():
            self._file.seek(0)
        while (left := place - self.tell()) > 0 and self._next(min(left, _BLOCK)):
            pass

    def _next(self, size: int) -> bytes:
        if not self._cpu.left():
            seconds = budgets.INSPECT_SECONDS
            raise _TooMuchError(f"takes more than {seconds} s of processor time to unpack")
        return self._file.read(size)


def _fact(error: Exception) -> str:
    """What tarfile and the packers say, who use several lines."""
    return quote(" ".join(str(error).split()))


def _members(opened: tarfile.TarFile, where: str, packed: int) -> Mapping[str, tarfile.TarInfo]:
    """Files and links by their names; raise for a member that no source archive has."""
    members: dict[str, tarfile.TarInfo] = {}
    places: set[str] = set()
    total = names = 0
    for count, member in enumerate(opened, start=1):
        name = place = posixpath.normpath(member.name)
        names += len(name) + len(member.linkname)
        if fault := fault_of_length(name):
            raise TorchwheelError(f"{where}: member {shorten(name)!r} {fault}")
        while place and place not in places:
            places.add(place)
            place = place.rpartition("/")[0]
        if max(count, len(places)) > budgets.MEMBERS:
            raise TorchwheelError(f"{where}: has more than {budgets.MEMBERS} files and folders")
        if names > budgets.DIRECTORY_BYTES:
            mib = budgets.DIRECTORY_BYTES // budgets.MIB
            raise TorchwheelError(f"{where}: the names in it have more than {mib} MiB")
        member.pax_headers = {}  # each has a copy of those that hold for all members
        total += member.size
        _check_size(total if member.size >= 0 else math.inf, packed, where)
        if member.isdir():
            continue
        if name in members:
            raise TorchwheelError(f"{where}: member {shorten(name)!r} is there twice")
        if not (member.isreg() or member.issym() or member.islnk()):
            raise TorchwheelError(f"{where}: member {shorten(name)!r} is a special file")
        members[name] = member
    # Read to the end: the checksum is behind the last member, where tarfile stops.
    while opened.fileobj is not None and opened.fileobj.read(_BLOCK):
        pass
    return members


def _check_size(total: float, packed: int, where: str) -> None:
    if total > budgets.UNPACKED_BYTES:
        raise TorchwheelError(f"{where}: unpacks to more than {budgets.UNPACKED_BYTES} bytes")
    if total > max(budgets.RATIO_FROM, budgets.RATIO * packed):
        raise TorchwheelError(f"{where}: unpacks to more than {budgets.RATIO} times")


def _file_of(
    member: tarfile.TarInfo, members: Mapping[str, tarfile.TarInfo], where: str
) -> tarfile.TarInfo:
    """The member itself or, of a hard link, the plain file of the archive that it names."""
    if member.isreg():
        return member
    file = members.get(posixpath.normpath(member.linkname))
    if file is None or not file.isreg():
        raise _no_file(member, where)
    return file


def _no_file(link: tarfile.TarInfo, where: str) -> TorchwheelError:
    name, text = shorten(link.name), shorten(link.linkname)
    return TorchwheelError(
        f"{where}: member {name!r} is a link to {text!r}, which is no file of the archive"
    )


def _write_links(
    links: Mapping[str, tarfile.TarInfo], target: Path, project: Path, where: str
) -> None:
    """Make the symbolic links, after all files: nothing is written through one of them."""
    for name, link in links.items():
        path = path_inside(target, name, where)
        if not link.linkname:
            raise _no_file(link, where)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(link.linkname)
    for name, link in links.items():
        if not link_stays(project, target / name):
            raise _no_file(link, where)


def _write(blocks: Iterable[bytes], target: Path, executable: bool) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("xb") as file:
        file.writelines(blocks)
    if executable:
        make_executable(target)
