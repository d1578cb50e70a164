"""The sdists of a release: of the project and of each bundled package, from the sources here.

Each must give the wheel that was tried. One that lacks a file, or is of other sources, is a fault.
"""

import dataclasses
import gzip
import io
import re
import shutil
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from packaging.utils import parse_sdist_filename

from torchwheel.inspect.archive import open_archive
from torchwheel.inspect.sbom import FILE as SBOM
from torchwheel.inspect.sdist import unpack
from torchwheel.inspect.wheel import Wheel, find_dist_info, is_library, member_text, read_wheel
from torchwheel.matrix.rules import WHEEL_SUFFIX
from torchwheel.matrix.sections import Matrix
from torchwheel.pipeline.bundled import EPOCH
from torchwheel.pipeline.frontend import build_sdist, build_wheel
from torchwheel.pipeline.repair import repack, stamp
from torchwheel.pipeline.sources import stage
from torchwheel.release.artifacts import HashedWheel, ReleaseCase
from torchwheel_runtime import claims as claims_file
from torchwheel_runtime.console import Progress
from torchwheel_runtime.files import path_inside, sha256
from torchwheel_runtime.inspect import budgets
from torchwheel_runtime.text import quote

_GENERATED = re.compile(r"^[^/]+/(.*/)?[^/]+\.egg-info/")
"""What setuptools writes beside the sources: it says nothing that PKG-INFO does not."""


@dataclasses.dataclass(frozen=True)
class Sdist:
    """A packed sdist, and the folder with the files that it holds."""

    path: Path
    source: Path

    @property
    def version(self) -> str:
        """Its version, by its name."""
        return str(parse_sdist_filename(self.path.name)[1])


def make_sdists(matrix: Matrix, root: Path, scratch: Path, progress: Progress) -> list[Sdist]:
    """Build the sdist of the project, then those of the bundled packages.

    An ordinary project has none here: its setup.py is foreign code that wants a torch, and its own
    author publishes its sdist.

    Args:
        matrix: the matrix.
        root: its folder.
        scratch: an empty folder for them; it must stay until they are copied.
        progress: reports each step to the user.
    """
    made: list[Sdist] = []
    # A package that is there as a wheel has its sources elsewhere.
    folders = [name for name in matrix.project.bundled if not name.endswith(WHEEL_SUFFIX)]
    own = () if matrix.abis.ordinary else (matrix.project.source,)
    for number, name in enumerate((*own, *folders)):
        progress.step(f"sdist: {name}")
        folder = scratch / str(number)
        folder.mkdir()
        # A copy, as setuptools writes to the folder that it reads; and of tracked files alone, as
        # the artifacts of a release lie in the checkout too.
        stage((root / name).resolve(), folder / "tree", tracked=True)
        built = build_sdist(folder / "tree", folder / "built", folder / "build.log")
        (folder / "unpacked").mkdir()
        members = _members(unpack(built, folder / "unpacked"))
        packed = folder / built.name
        packed.write_bytes(pack_sdist(members))
        for member, (data, _) in members.items():
            file = path_inside(folder, member, built.name)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        made.append(Sdist(packed, folder / built.name.removesuffix(".tar.gz")))
    return made


def sdist_faults(
    sdists: Sequence[Sdist],
    cases: Sequence[ReleaseCase],
    bundled: Sequence[HashedWheel],
    *,
    ordinary: bool = False,
) -> Iterator[str]:
    """A line for each sdist that is of another version, or gives another wheel, than the release's.

    Beside its libraries and claims, every wheel of the project has the files and the metadata of
    the pure wheel that the sdist gives.

    Args:
        sdists: of the project first, unless it is an ordinary one.
        cases: the variants of the release.
        bundled: its bundled packages.
        ordinary: whether the project is.
    """
    others = sdists if ordinary else sdists[1:]
    if not ordinary:
        yield from _faults_of_project(sdists[0], cases)
    published = {package.path.name: package.sha256 for package in bundled}
    for sdist in others:
        packed = sdist.source.parent / "packed"
        shutil.rmtree(packed, ignore_errors=True)
        packed.mkdir()
        wheel = repack(_wheel_of(sdist), packed)
        if published.get(wheel.name) != sha256(wheel):
            yield f"{sdist.path.name}: gives another wheel than {wheel.name} here; {_SOURCES}"


def _faults_of_project(own: Sdist, cases: Sequence[ReleaseCase]) -> Iterator[str]:
    for case in cases:
        if own.version != case.candidate.wheel.version.public:
            yield (
                f"{own.path.name}: expected version {case.candidate.wheel.version.public}, that of "
                f"{case.candidate.path.name}; assemble from the sources of the release"
            )
            return
    built = _wheel_of(own)
    for case in cases:
        released = case.candidate.wheel
        with tempfile.TemporaryDirectory(dir=built.parent) as folder:
            stamped = read_wheel(stamp(built, case.candidate.claims, Path(folder)))
            if name := _first_difference(
                stamped, released, pure=case.candidate.claims.abi == "pure"
            ):
                other = f"gives another wheel than {released.path.name}: {quote(name)} differs"
                yield f"{own.path.name}: {other}; {_SOURCES}"


_SOURCES = "assemble from the sources that the wheels were built from"


def pack_sdist(members: Mapping[str, tuple[bytes, bool]]) -> bytes:
    """An archive whose bytes depend on names, contents and executable bits alone."""
    text = io.BytesIO()
    with tarfile.open(fileobj=text, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in sorted(members):
            data, executable = members[name]
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(data), 0o755 if executable else 0o644
            info.mtime = int(EPOCH["SOURCE_DATE_EPOCH"])
            archive.addfile(info, io.BytesIO(data))
    return gzip.compress(text.getvalue(), mtime=0)


def _members(project: Path) -> dict[str, tuple[bytes, bool]]:
    """The files of an unpacked sdist; of a link the file that it leads to."""
    return {
        name: (path.read_bytes(), bool(path.stat().st_mode & 0o100))
        for path in project.rglob("*")
        if path.is_file()
        and not _GENERATED.match(name := path.relative_to(project.parent).as_posix())
    }


def _wheel_of(sdist: Sdist) -> Path:
    """The wheel that a build frontend makes of it."""
    folder = sdist.source.parent
    log = folder / "wheel.log"
    return build_wheel(sdist.source, EPOCH, folder / "wheel", log, lambda _: None)


def _first_difference(stamped: Wheel, released: Wheel, *, pure: bool) -> str | None:
    """The first file of a wheel that is not as in the stamped one, or its name; None if all are.

    Libraries, their SBOMs and the claims are of this wheel, and gates judge them. WHEEL has other
    tags, those of its file name, and RECORD holds in every wheel that was read.
    """
    if stamped.path.name.split("-")[:2] != released.path.name.split("-")[:2]:
        return released.path.name
    info = find_dist_info(stamped.members)
    own = {f"{info}/{name}" for name in ("RECORD", "WHEEL", claims_file.FILE)}
    own |= set() if pure else {f"{info}/{_PARTS}", f"{info}/{SBOM}"}
    one, other = (
        {
            name: entry.digest
            for name, entry in wheel.record.items()
            if name not in own and not name.split("/")[0].endswith(".libs") and not is_library(name)
        }
        for wheel in (stamped, released)
    )
    names = sorted(one.keys() | other.keys())
    if differing := next((name for name in names if one.get(name) != other.get(name)), None):
        return differing
    lines = [line for line in _wheel_file(stamped) if not line.startswith(("Tag:", "Root-Is-"))]
    lines += [f"Tag: {tag}" for tag in released.tags]
    lines += [f"Root-Is-Purelib: {str(pure).lower()}"]
    return None if sorted(lines) == sorted(_wheel_file(released)) else f"{info}/WHEEL"


_PARTS = "sboms/auditwheel.cdx.json"
"""What auditwheel writes of the libraries that it copies into a wheel."""


def _wheel_file(wheel: Wheel) -> list[str]:
    """The lines of WHEEL."""
    with open_archive(wheel.path) as archive:
        name = f"{find_dist_info(wheel.members)}/WHEEL"
        text = member_text(archive, name, budgets.WHEEL_FILE_BYTES)
    return [line for line in text.split("\n") if line]
